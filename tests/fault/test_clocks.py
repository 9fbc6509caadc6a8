"""Clocks jump and differ. A scheduler slept for the two hours by which its clock had been set back, and its peers took
it for dead; another, set forward, fired everything.

Decisions use the database's clock, pauses the monotonic one: processes whose own wall clock lies work on.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db.models import F
from django.utils import timezone

from cronoq_django.models import Attempt, Run, Worker
from tests import tasks

from .clock import Clock, needs_a_compiler
from .conftest import Fleet
from .slots import assert_one_run_a_slot, epoch, every_second, fired_since

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), needs_a_compiler]

SECOND = timedelta(seconds=1)


def test_the_clock_is_faked(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    clock.set(7200)
    program = "import time, datetime; print(time.time(), datetime.datetime.now().timestamp())"
    said = subprocess.check_output([sys.executable, "-c", program], env={**os.environ, **clock.environment}, text=True)
    assert [float(word) - time.time() for word in said.split()] == pytest.approx([7200, 7200], abs=30)


def test_a_leaders_clock_jumps_and_no_slot_is_missed_or_doubled(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    jobs = every_second(1)
    clock = Clock(tmp_path)
    leader = fleet.leader(**clock.environment)
    wait_until(lambda: fired_since(timezone.now() - timedelta(minutes=1)) >= 2)
    process = psutil.Process(leader.pid)
    spent, begun = sum(process.cpu_times()[:2]), time.monotonic()
    for offset in (7200, 0, -7200, 0):
        clock.set(offset)
        jumped_at = timezone.now()
        wait_until(lambda since=jumped_at: fired_since(since) >= 3, seconds=6, what=f"slots after a jump to {offset}")
    assert sum(process.cpu_times()[:2]) - spent < 0.2 * (time.monotonic() - begun) + 0.3
    leader.stop()
    assert epoch() == 1
    assert_one_run_a_slot(jobs)
    late = Run.objects.filter(trigger="slot").exclude(
        created_at__range=(F("scheduled_for"), F("scheduled_for") + 2 * SECOND)
    )
    assert not late.exists()


def test_workers_whose_clocks_differ_take_nothing_from_each_other(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    fleet.leader()
    for offset in (600, -600):
        clock = Clock(tmp_path, f"clock{offset}")
        clock.set(offset)
        fleet.worker("--pool", "default=2", CRONOQ_LEASE="2", **clock.environment)
    wait_until(lambda: Worker.objects.filter(status="online").count() == 2)
    long = [tasks.sleep_async.enqueue(5.0) for _ in range(4)]  # longer than two leases
    later = [tasks.add.using(run_after=timezone.now() + 2 * SECOND).enqueue(1) for _ in range(4)]
    ids = [result.id for result in (*long, *later)]
    wait_until(lambda: not Run.objects.filter(pk__in=ids, finished_at=None).exists())
    found = Run.objects.filter(pk__in=ids)
    assert {(run.status, run.attempts) for run in found} == {("succeeded", 1)}
    assert not Attempt.objects.exists()
    assert not found.filter(started_at__lt=F("due_at")).exists()
    assert found.values("worker").distinct().count() == 2
