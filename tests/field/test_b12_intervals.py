"""A weekly interval was counted from the start of a process, and deploys came more often than weekly: it never ran.

The same where any other schedule was edited often, since each reload began to count anew. Here an interval counts from
an anchor in its row. The time is real, and shorter: five seconds are the week, a restart is due every two.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from cronoq_django.models import Job, Run
from cronoq_django.store import upsert_job
from tests.fault.conftest import Fleet
from tests.fault.slots import epoch

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

WEEK = timedelta(seconds=5)


def weekly_job() -> Job:
    return upsert_job(
        "weekly", script="tests.tasks.add", args=[1], kind="every", every=WEEK, overlap="allow", misfire="all"
    )


def assert_one_run_a_slot(job: Job, *, weeks: int, late: timedelta) -> None:
    runs = Run.objects.filter(job=job, trigger="slot").order_by("scheduled_for")
    assert [run.scheduled_for for run in runs] == [job.created_at + k * WEEK for k in range(1, weeks + 1)]
    assert not runs.filter(created_at__gt=F("scheduled_for") + late).exists()


def test_b12_leaders_are_restarted_more_often_than_the_job_is_due(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    weekly = weekly_job()
    end = time.monotonic() + 4 * WEEK.total_seconds()
    while time.monotonic() < end:
        before = epoch()
        leader = fleet.leader()
        wait_until(lambda last=before: epoch() > last)
        time.sleep(0.5)
        leader.kill()
    fleet.leader()
    wait_until(lambda: Run.objects.filter(job=weekly).count() >= 4)
    assert_one_run_a_slot(weekly, weeks=Run.objects.filter(job=weekly).count(), late=2 * WEEK)


def test_b12_other_jobs_are_edited_all_the_time(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    other = upsert_job("other", script="tests.tasks.add", args=[1], kind="cron", cron="0 0 1 1 *")
    fleet.leader()
    wait_until(lambda: epoch() == 1)
    weekly = weekly_job()
    while Run.objects.filter(job=weekly).count() < 4:
        for minute in range(10):
            Job.objects.filter(pk=other.pk).update(cron=f"{minute} 0 1 1 *")
            time.sleep(0.1)
    assert_one_run_a_slot(weekly, weeks=4, late=WEEK)
