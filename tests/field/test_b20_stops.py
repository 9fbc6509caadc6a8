"""A worker that was asked to stop while it was starting lost the signal, and went on claiming until it was killed.

Others stopped claiming, but dropped what they had claimed ahead, or gave unfinished runs back as failed. Here each
signal counts from the first moment on; what has not begun goes back as it was, what executes may end within the grace,
and what does not end goes back, uncharged, before the process ends.
"""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from cronoq_django.models import Attempt, Run, Worker
from cronoq_django.models.choices import Outcome, Status
from cronoq_django.tasks.enqueue import enqueue_many
from tests import tasks
from tests.fault.conftest import Fleet, Process
from tests.fault.runs import finished, lines, status_of, witnessed_claims

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

TIMES = int(os.environ.get("CRONOQ_REPEATS", "1"))
MOMENTS = [0, 50, 100, 200, 400, 800]  # milliseconds after the start
GRACE = 4.0
SLACK = 2.0  # seconds beyond the grace; tests give the machine five times as much
SECOND = timedelta(seconds=1)


def short_tasks(path: Path, number: int, seconds: float = 0.0) -> list[Any]:
    return enqueue_many([tasks.count_line.bind(str(path), str(n), seconds) for n in range(number)])


def stop(worker: Process) -> float:
    """SIGTERM; how many seconds the process takes to end."""
    begun = time.monotonic()
    worker.signal(signal.SIGTERM)
    worker.wait()
    return time.monotonic() - begun


def assert_each_succeeded_once(path: Path, number: int) -> None:
    assert sorted(lines(path), key=int) == [str(n) for n in range(number)]
    assert list(Run.objects.values_list("status", "attempts").distinct()) == [(Status.SUCCEEDED, 1)]
    assert not Attempt.objects.exclude(outcome=Outcome.RELEASED).exists()


def test_b20_a_signal_at_any_moment_of_the_start(fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "lines"
    results = short_tasks(path, 1000)
    with witnessed_claims() as claims:
        for moment in MOMENTS * TIMES:
            worker = fleet.worker(CRONOQ_GRACE=str(GRACE))
            time.sleep(moment / 1000)
            signalled_at = timezone.now()
            assert stop(worker) < GRACE + 5 * SLACK, moment
            assert [at for *_, at in claims() if at > signalled_at + SECOND] == [], moment
            assert not Run.objects.filter(status=Status.RUNNING).exists(), moment
    assert set(Worker.objects.values_list("status", flat=True)) <= {"stopped"}
    fleet.worker()
    wait_until(finished(*results))
    assert_each_succeeded_once(path, 1000)


def test_b20_a_signal_while_it_works_with_more_claimed_ahead(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """What was claimed ahead is neither dropped nor charged."""
    path = tmp_path / "lines"
    results = short_tasks(path, 3000, 0.004)  # 50 of them are claimed ahead, and asked for again when 25 are left
    given_back = 0
    with witnessed_claims() as claims:
        for _ in range(max(2, TIMES)):
            worker = fleet.worker(CRONOQ_GRACE=str(GRACE))
            before = len(lines(path))
            wait_until(lambda before=before: len(lines(path)) >= before + 50)
            assert stop(worker) < GRACE + 5 * SLACK
            assert not Run.objects.filter(status=Status.RUNNING).exists()
            ended = Run.objects.filter(status=Status.SUCCEEDED, attempts=1).count()
            assert ended == len(lines(path))
            assert Run.objects.filter(status=Status.QUEUED, attempts=0, started_at=None).count() == 3000 - ended
            given_back = len(claims()) - ended
            if ended > 2000:
                break
    fleet.worker()
    wait_until(finished(*results))
    assert_each_succeeded_once(path, 3000)
    print(f"{given_back} claims were given back")
    assert given_back > 0


def test_b20_a_second_signal_ends_the_grace(fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "held"
    for _ in range(TIMES):
        worker = fleet.worker("--pool", "default=2", CRONOQ_GRACE="600")
        held = [tasks.hold.enqueue(str(path), 600) for _ in range(2)]
        wait_until(lambda: len(lines(path)) == 2)
        worker.signal(signal.SIGTERM)
        wait_until(lambda: Worker.objects.filter(status="draining").exists(), what="it knows of the first one")
        time.sleep(1.1)  # signals within a second count as one: service managers send theirs to the whole group
        assert stop(worker) < 5 * SLACK
        assert_given_back(held)
        path.unlink()
        Run.objects.all().delete()


def test_b20_what_outlives_the_grace_goes_back_before_the_process_ends(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """Leases and heartbeats go on meanwhile: nobody else takes it as long as it executes."""
    path = tmp_path / "held"
    fleet.leader()
    for _ in range(TIMES):
        worker = fleet.worker(CRONOQ_GRACE="7")  # more than two leases
        held = [tasks.hold.enqueue(str(path), 600)]
        wait_until(lambda: lines(path))
        began = Run.objects.get(pk=held[0].id)
        begun = time.monotonic()
        worker.signal(signal.SIGTERM)
        seen = []
        while worker.is_alive:
            run = Run.objects.get(pk=held[0].id)
            if run.status == Status.RUNNING:
                beat = Worker.objects.get(pk=run.worker_id).last_heartbeat_at
                seen.append((run.claim, run.lease_expires_at, beat))
            time.sleep(0.1)
        assert 7 <= time.monotonic() - begun < 7 + 5 * SLACK
        assert {claim for claim, _, _ in seen} == {began.claim}
        assert len({lease for _, lease, _ in seen}) >= 3
        assert len({beat for _, _, beat in seen}) >= 3
        assert_given_back(held)
        path.unlink()
        Run.objects.all().delete()


def assert_given_back(held: list[Any]) -> None:
    """By the time the process has ended: queued, uncharged, and it says why."""
    for result in held:
        run = Run.objects.get(pk=result.id)
        assert (status_of(result), run.attempts) == (Status.QUEUED, 0)
        assert run.error.startswith("shutdown")
        assert [(a.outcome, a.error) for a in Attempt.objects.filter(run=run.pk)] == [(Outcome.RELEASED, run.error)]
