"""Downtime, a pause and an edit once more, by the clock on the wall: nothing is injected."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from cronoq_django.models import Job, JobState, Run
from cronoq_django.schedules import PUNCTUAL
from cronoq_django.store import pause_job, resume_job, upsert_job
from tests.fault.conftest import Fleet

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

SECOND = timedelta(seconds=1)
DOWN = PUNCTUAL + 5 * SECOND


def every_second(name: str, **columns: Any) -> Job:
    return upsert_job(name, script="tests.tasks.add", args=[1], kind="every", every=SECOND, overlap="allow", **columns)


def fired(job: Job) -> list[datetime]:
    runs = Run.objects.filter(job=job, trigger="slot").exclude(status="skipped").order_by("scheduled_for")
    return list(runs.values_list("scheduled_for", flat=True))


def test_b09_and_b10_and_b11_in_real_time(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    jobs = {misfire: every_second(misfire, misfire=misfire) for misfire in ("skip", "latest", "all")}
    paused, edited = every_second("paused", misfire="all"), every_second("edited", misfire="all")
    leader = fleet.leader()
    wait_until(lambda: all(fired(job) for job in (*jobs.values(), paused, edited)))

    pause_job(paused.pk)
    Job.objects.filter(pk=edited.pk).update(kind="cron", cron="0 0 1 1 *")
    wait_until(lambda: not JobState.objects.get(job=paused).next_run_at, seconds=2)
    still = fired(paused), fired(edited)
    leader.kill()
    down_at = timezone.now()
    time.sleep(DOWN.total_seconds())  # the time is what is tested
    up_at = timezone.now()
    resume_job(paused.pk)
    resumed_at = timezone.now()
    fleet.leader()
    wait_until(lambda: all(slots[-1] > up_at + 2 * SECOND for slots in map(fired, (*jobs.values(), paused))))

    late = {name: [slot for slot in fired(job) if down_at < slot < up_at - PUNCTUAL] for name, job in jobs.items()}
    assert (late["skip"], len(late["latest"]) <= 1) == ([], True)
    assert [JobState.objects.get(job=job).missed_count > 0 for job in jobs.values()] == [True, True, True]
    makeup = [slot for slot in fired(jobs["all"]) if slot > down_at]
    assert {later - slot for slot, later in pairwise(makeup)} == {SECOND}
    assert fired(paused)[: len(still[0])] == still[0]
    assert fired(paused)[len(still[0])] > resumed_at
    assert fired(edited) == still[1]
