"""A worker that was frozen, or cut off, woke after another had done its work, and overwrote what that one had stored.

Its lease was over, the run was taken over; then its late outcome was believed, because it named the run and not the
claim. Here a claim is a number that no other claim has: whoever held an older one changes nothing, whatever it says.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from cronoq_django.models import Attempt, Dependency, Run, RunDetail, Worker
from cronoq_django.models.choices import Outcome, Status
from cronoq_django.store import runs
from tests import tasks
from tests.fault.conftest import Fleet, Process, database_url
from tests.fault.proxy import TcpProxy
from tests.fault.runs import finished, lines

from .test_b34_cancel import OUTCOMES, children, claim, outcome_of, row

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

TIMES = int(os.environ.get("CRONOQ_REPEATS", "1"))
ENDINGS = ["success", "failure", "snooze", "retry", "cancel"]
LATE = {**OUTCOMES, "cancel": (Outcome.CANCELLED, Status.CANCELLED, "requested")}
SECONDS = {**OUTCOMES, "still running": None, "cancel": LATE["cancel"]}  # what became of the second owner's attempt


def rows_of(run: Any) -> list[Any]:
    """All that there is of a run: itself, attempts, what it said, and what waits for it."""
    return [
        *Run.objects.filter(pk=run.id).values(),
        *Attempt.objects.filter(run=run.id).order_by("id").values(),
        *RunDetail.objects.filter(run=run.id).values(),
        *Dependency.objects.filter(prerequisite=run.id).order_by("id").values(),
        *Run.objects.filter(pk__in=Dependency.objects.filter(prerequisite=run.id).values("run"))
        .order_by("id")
        .values(),
    ]


@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("late", LATE)
def test_b19_every_late_outcome_is_refused(late: str, second: str) -> None:
    """By the statements alone, each twenty times."""
    for number in range(20):
        run = tasks.add.using(key=f"{number}", max_attempts=9).enqueue(1)
        children(run)
        (first,) = claim()
        with transaction.atomic(), connection.cursor() as cursor:
            runs.mark_started(cursor, [(first.id, first.claim, timedelta())])
            Run.objects.filter(pk=first.id).update(lease_expires_at="2026-01-01T00:00Z")
            assert runs._taken_back(
                cursor, runs.run(cursor, "take_back_runs", worker=None, begun=None, why="", limit=9, now=None)
            ) == {first.id: Status.QUEUED}
        (owner,) = claim()
        assert owner.claim > first.claim
        detail = runs.Detail(owner.id, owner.claim, 2, 5, "the second's", "")
        with transaction.atomic(), connection.cursor() as cursor:
            runs.write_details(cursor, [detail])
            if (how := SECONDS[second]) is not None:
                assert runs.complete_runs(cursor, [outcome_of(owner, how)]).accepted
        before = rows_of(run)
        with transaction.atomic(), connection.cursor() as cursor:
            zombies = runs.Detail(first.id, first.claim, 1, 5, "the zombie's", "")
            runs.write_details(cursor, [zombies])
            assert runs.mark_started(cursor, [(first.id, first.claim, timedelta())]) == set()
            completed = runs.complete_runs(cursor, [outcome_of(first, LATE[late], result='"late"')])
            assert (completed.accepted, completed.busy) == ({}, set())
            assert first.claim not in [one[1] for one in runs.renew_leases(cursor, worker=first.id, lease=timedelta(9))]
        assert rows_of(run) == before
        Run.objects.filter(pk=run.id).exclude(status__in=["succeeded", "failed", "cancelled"]).delete()
    assert Attempt.objects.filter(outcome=Outcome.LOST).count() == 20


@contextmanager
def frozen(first: Process, child_alone: bool) -> Iterator[None]:
    """SIGSTOP, to the whole group or only to the child that executes: its supervisor then renews for it no more."""
    (worker,) = Worker.objects.filter(status="online")
    stop = (lambda number: os.kill(worker.process_id, number)) if child_alone else first.signal_all
    stop(signal.SIGSTOP)
    yield
    stop(signal.SIGCONT)


@contextmanager
def in_the_dark(proxy: TcpProxy) -> Iterator[None]:
    """Nothing that it says arrives, and nobody answers."""
    proxy.go_black()
    yield
    proxy.heal()


@pytest.mark.parametrize("second", ["has ended", "still executes"])
@pytest.mark.parametrize("cut_off", ["frozen", "its child frozen", "in the dark"])
def test_b19_a_worker_that_wakes_changes_nothing(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path, cut_off: str, second: str
) -> None:
    """Five runs at a time, whose first attempts end in each way when they wake."""
    options = ("--pool", "default=5"), {"CRONOQ_LEASE": "1"}
    fleet.leader(CRONOQ_LEASE="1")
    for number in range(TIMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        with TcpProxy(database_url()) as proxy:
            first = fleet.worker(*options[0], **options[1], DATABASE_URL=proxy.url)
            results = {ending: tasks.outlive.using(key=ending).enqueue(str(folder), ending) for ending in ENDINGS}
            waiting = {ending: children(result) for ending, result in results.items()}
            wait_until(lambda folder=folder: len(lines(folder / "lines")) == 5)
            wait_until(lambda: Run.objects.filter(started_at__isnull=False).count() == 5, what="the rows tell of it")
            zombie = row(results["success"]).worker_id
            dark = cut_off == "in the dark"
            with in_the_dark(proxy) if dark else frozen(first, child_alone=cut_off == "its child frozen"):
                other = fleet.worker(*options[0], **options[1])
                wait_until(lambda folder=folder: len(lines(folder / "lines")) == 10, what="all are taken over")
                if second == "has ended":
                    (folder / "end-2").touch()
                    wait_until(finished(*results.values()))
                before = {ending: rows_of(result) for ending, result in results.items()}
                (folder / "end-1").touch()
            wait_until(lambda first=first: first.output.count("was refused") == 5, what="each outcome is refused")
            if second == "has ended":
                assert {ending: rows_of(result) for ending, result in results.items()} == before
            (folder / "end-2").touch()
            wait_until(finished(*results.values()))
            for ending, result in results.items():
                assert_it_is_the_seconds(result, zombie, waiting[ending])
            wait_until(lambda zombie=zombie: Worker.objects.get(pk=zombie).status == "online", what="it goes on")
            other.stop()
            wait_until(finished(again := tasks.add.enqueue(1)), what="and works")
            assert row(again).worker_id == zombie
            first.stop()
        Run.objects.all().delete()


def assert_it_is_the_seconds(result: Any, zombie: Any, waiting: dict[str, Any]) -> None:
    run = row(result)
    assert (run.status, run.result, run.attempts, run.key_held) == (Status.SUCCEEDED, "attempt 2", 2, False)
    assert run.worker_id != zombie
    attempts = Attempt.objects.filter(run=run.pk).order_by("id")
    assert [(one.outcome, one.number) for one in attempts] == [(Outcome.LOST, 1), (Outcome.SUCCEEDED, 2)]
    assert [one.worker_id for one in attempts] == [zombie, run.worker_id]
    assert RunDetail.objects.get(run=run.pk).message == "attempt 2"
    assert {on: row(child).status for on, child in waiting.items()} == {
        "success": Status.QUEUED,
        "failure": Status.SKIPPED,
        "any": Status.QUEUED,
    }
