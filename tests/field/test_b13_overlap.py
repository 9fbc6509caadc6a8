"""With "one at a time", a run that hung made every later slot be skipped until somebody restarted the process.

And in a cluster, a missed heartbeat made others think the run dead, and start it again beside the living one. Here the
slots that find it running are recorded as skipped; its timeout, or its lease if the worker is gone, ends it.
"""

import signal
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from cronoq_django.models import Attempt, Job, Run
from cronoq_django.store import upsert_job
from tests.fault.conftest import Fleet

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

SECOND = timedelta(seconds=1)


def job(script: str, *args: Any, **columns: Any) -> Job:
    columns = {"kind": "every", "every": SECOND, "max_attempts": 1, **columns}
    return upsert_job("one at a time", script=f"tests.tasks.{script}", args=list(args), **columns)


def slots(**columns: Any) -> list[Run]:
    return list(Run.objects.filter(trigger="slot", job_name="one at a time", **columns).order_by("scheduled_for"))


def assert_never_two_at_once() -> None:
    """By when they began and ended, the next slot's run began after the one before had ended."""
    executed = [run for run in slots(started_at__isnull=False) if run.finished_at]
    for before, after in pairwise(executed):
        assert before.finished_at is not None
        assert after.started_at is not None
        assert before.finished_at <= after.started_at


def test_b13_slots_that_find_it_running_are_recorded_as_skipped(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    job("sleep_async", 2.5)
    fleet.leader()
    fleet.worker()
    wait_until(lambda: len(slots(status="succeeded")) >= 2)
    skipped = slots(status="skipped")
    assert len(skipped) >= 2
    assert {(run.reason, run.error) for run in skipped} == {("overlap", "1 unfinished, concurrency=1 (overlap=skip)")}
    assert_never_two_at_once()


def test_b13_a_hung_run_is_ended_by_its_timeout_and_the_next_slot_runs(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    job("never_return", timeout=3 * SECOND)
    fleet.leader()
    fleet.worker()
    first, second = wait_until(lambda: len(found := slots(reason="timeout")) >= 2 and found[:2])
    assert first.finished_at - first.started_at < 10 * SECOND
    assert second.scheduled_for - first.finished_at < 10 * SECOND
    assert_never_two_at_once()


def test_b13_a_killed_workers_run_makes_room_within_the_lease(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    job("sleep_async", 60.0)
    fleet.leader()
    worker = fleet.worker()
    (running,) = wait_until(lambda: slots(status="running", started_at__isnull=False))
    worker.kill()
    killed_at = timezone.now()
    fleet.worker()
    wait_until(lambda: slots(reason="lost"), what="it is lost with its worker")
    wait_until(lambda: slots(status="running"), what="the next slot runs")
    assert timezone.now() - killed_at < 20 * SECOND  # the lease, 3 s, two rescues, and a slot; a new worker's start
    assert Attempt.objects.get(run=running.pk).outcome == "lost"


def test_b13_a_frozen_workers_attempt_changes_nothing_when_it_wakes(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    job("sleep_async", 1.5, max_attempts=3, every=60 * SECOND, anchor=timezone.now() - 58 * SECOND)
    fleet.leader()
    frozen = fleet.worker()
    (running,) = wait_until(lambda: slots(status="running", started_at__isnull=False))
    frozen.signal_all(signal.SIGSTOP)
    fleet.worker()
    wait_until(lambda: slots(status="succeeded"))
    (after,) = slots()
    frozen.signal_all(signal.SIGCONT)
    wait_until(lambda: "was refused" in frozen.output, what="it says that its outcome was refused")
    (then,) = slots()
    assert (then.worker_id, then.finished_at, then.attempts) == (after.worker_id, after.finished_at, after.attempts)
    assert then.worker_id != running.worker_id
