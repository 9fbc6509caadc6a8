"""Tasks that hold the interpreter, or ignore that their time is over, or that they were cancelled.

The supervisor looks after them, since their own process can't: it renews for one that is only busy, and ends the
process of one that does not end. Then it alone is charged: what else that process ran goes back as it was.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cronoq_django.models import Attempt, Run, Worker
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.store.controls import cancel_runs
from cronoq_django.tasks.enqueue import enqueue_many
from tests import tasks

from .conftest import Fleet
from .runs import finished, lines, status_of

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

GRACE = 2.0


def test_one_call_into_c_of_four_leases_is_executed_once(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """The thread that sent the heartbeats got no turn, and another worker took the run over."""
    path = tmp_path / "lines"
    fleet.leader(CRONOQ_LEASE="1")
    for _ in range(2):
        fleet.worker(CRONOQ_LEASE="1")
    result = tasks.hold_interpreter.enqueue(str(path), 6.0)
    wait_until(finished(result))
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.attempts) == (Status.SUCCEEDED, 1)
    assert (run.finished_at - run.started_at).total_seconds() > 4
    assert lines(path) == ["begun", "ended"]


@pytest.mark.parametrize("stubborn", [tasks.hold_interpreter, tasks.ignore_everything], ids=["in C", "in Python"])
def test_a_task_that_ignores_its_timeout_is_ended_after_the_grace_and_alone_is_charged(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path, stubborn: Any
) -> None:
    """It kept its thread for ever: four such tasks, and the worker did nothing any more."""
    path, beside = tmp_path / "lines", tmp_path / "beside"
    worker = fleet.worker("--pool", "default=2", CRONOQ_GRACE=str(GRACE))
    sibling = tasks.hold.using(max_attempts=1).enqueue(str(beside), 6.0)
    wait_until(lambda: lines(beside))
    arguments = (str(path), 1e6) if stubborn is tasks.hold_interpreter else (str(path),)
    result = stubborn.using(timeout=1, max_attempts=1).enqueue(*arguments)
    wait_until(finished(result))
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.TIMEOUT, 1)
    assert "its process was ended" in run.error
    took = (run.finished_at - run.started_at).total_seconds()
    assert 1 + GRACE - 0.5 <= took < 1 + GRACE + 10
    (attempt,) = Attempt.objects.filter(run=run.pk)
    assert attempt.outcome == Outcome.TIMED_OUT
    wait_until(finished(sibling), what="another process executes what that one ran")
    other = Run.objects.get(pk=sibling.id)
    assert (other.status, other.attempts) == (Status.SUCCEEDED, 1)  # with one attempt allowed
    assert [line.split()[1] for line in lines(beside)] == ["begun", "begun", "ended"]
    (released,) = Attempt.objects.filter(run=other.pk)
    assert (released.outcome, "another task" in released.error) == (Outcome.RELEASED, True)
    assert sorted(Worker.objects.values_list("status", flat=True)) == ["lost", "online"]
    assert worker.is_alive


def test_a_retry_follows_a_timeout_that_was_ignored(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    fleet.worker(CRONOQ_GRACE="0.5")
    result = tasks.hold_interpreter.using(timeout=0.5, max_attempts=2, backoff=tasks.AT_ONCE).enqueue(str(path), 1e6)
    wait_until(finished(result))
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.TIMEOUT, 2)
    assert list(Attempt.objects.filter(run=run.pk).values_list("outcome", flat=True)) == [Outcome.TIMED_OUT] * 2


def test_a_task_that_ignores_a_cancel_is_ended_after_the_grace(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    fleet.worker("--pool", "default=2", CRONOQ_GRACE=str(GRACE))
    for bound in (tasks.hold_interpreter.bind(str(path), 1e6), tasks.ignore_everything.bind(str(path))):
        (result,) = enqueue_many([bound])
        wait_until(lambda: "begun" in lines(path))
        asked_at = time.monotonic()
        assert cancel_runs([Run.objects.get(pk=result.id).pk]).requested == 1
        wait_until(finished(result))
        assert time.monotonic() - asked_at >= GRACE - 0.5
        assert status_of(result) == Status.CANCELLED
        path.unlink()


def test_what_is_claimed_ahead_and_cancelled_never_begins(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """It was running, as the database has it; but had no thread yet that could have been told."""
    path = tmp_path / "lines"
    fleet.worker("--pool", "default=1")
    wait_until(finished(*[tasks.count_line.enqueue(str(path), str(n)) for n in range(50)]))  # it knows: they are short
    for number in range(3):
        go = tmp_path / f"go-{number}"
        busy = tasks.report_and_wait.enqueue(str(go))
        waiting = [tasks.count_line.enqueue(str(path), "never") for _ in range(20)]
        wait_until(lambda busy=busy: status_of(busy) == Status.RUNNING)
        done = cancel_runs([Run.objects.get(pk=result.id).pk for result in waiting])
        assert done.ended == 0
        wait_until(finished(*waiting), what="they end while it goes on")
        assert status_of(busy) == Status.RUNNING
        go.touch()
        wait_until(lambda: not Run.objects.filter(finished_at=None).exists())
        assert {status_of(result) for result in waiting} == {Status.CANCELLED}
    assert "never" not in lines(path)
