"""A worker that was frozen, or cut off, woke after another had done its work, and overwrote what that one had stored.

Its lease was over, the run was taken over; then its late outcome was believed, because it named the run and not the
claim. Here a claim is a number that no other claim has: whoever held an older one changes nothing, whatever it says.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from cronoq_django.leader.fence import Fence
from cronoq_django.models import Attempt, Dependency, Run, RunDetail, Worker
from cronoq_django.models.choices import Condition, Outcome, Reason, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import runs
from cronoq_django.store.controls import cancel_runs
from cronoq_django.store.runs import ClaimedRun
from cronoq_django.tasks.enqueue import enqueue_many
from tests import tasks
from tests.fault.conftest import Fleet, Process, database_url
from tests.fault.proxy import TcpProxy
from tests.fault.runs import finished, lines

from .test_b34_cancel import OUTCOMES, children, claim, outcome_of, row

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

TIMES = int(os.environ.get("CRONOQ_REPEATS", "1"))
ENDINGS = ["success", "failure", "snooze", "retry", "cancel"]
LATE = {**OUTCOMES, "cancel": (Outcome.CANCELLED, Status.CANCELLED, Reason.REQUESTED)}
BATCH = 20


def rows_of(ids: Iterable[Any]) -> list[Any]:
    """All that there is of runs: themselves, attempts, what they said, and what waits for them."""
    ids = list(ids)
    dependencies = Dependency.objects.filter(prerequisite__in=ids)
    rows = (
        Run.objects.filter(pk__in=[*ids, *dependencies.values_list("run", flat=True)]),
        Attempt.objects.filter(run__in=ids),
        RunDetail.objects.filter(run__in=ids),
        dependencies,
    )
    return [row for found in rows for row in found.order_by("pk").values()]


def begun(zombie: UUID) -> list[ClaimedRun]:
    """Runs with keys, each with others that wait for it, whose attempts have begun and whose leases are over."""
    bound = [tasks.add.using(key=f"{number}", max_attempts=9).bind(1) for number in range(BATCH)]
    waiting = [
        tasks.add.using(after=one, on=on, queue_name="later").bind(2) for one in bound for on in Condition.values
    ]
    enqueue_many([*bound, *waiting])
    firsts = claim(worker=zombie, limit=BATCH)
    with transaction.atomic(), connection.cursor() as cursor:
        assert len(runs.mark_started(cursor, [(one.id, one.claim, timedelta()) for one in firsts])) == BATCH
    Run.objects.filter(worker=zombie).update(lease_expires_at="2026-01-01T00:00Z")
    return firsts


def rescued(leading: Fence) -> dict[str, int]:
    """How many runs have which state, once those whose lease was over are taken back."""
    with leading.transaction() as tx:
        assert len(runs.rescue(tx, limit=100)) == BATCH
    return dict(Counter(Run.objects.filter(pool="default").values_list("status", flat=True)))


def assert_refused(zombie: UUID, firsts: list[ClaimedRun], late: str) -> None:
    """Whatever the first owner, or its supervisor, still says."""
    before = rows_of(one.id for one in firsts)
    with transaction.atomic(), connection.cursor() as cursor:
        runs.write_details(cursor, [runs.Detail(one.id, one.claim, 1, 5, "the zombie's", "") for one in firsts])
        assert runs.mark_started(cursor, [(one.id, one.claim, timedelta()) for one in firsts]) == set()
        completed = runs.complete_runs(cursor, [outcome_of(one, LATE[late], result='"late"') for one in firsts])
        assert (completed.accepted, completed.busy) == ({}, set())
        assert runs.renew_leases(cursor, worker=zombie, lease=timedelta(hours=9)) == []
        assert runs.take_back_from(cursor, zombie, begun=[one.claim for one in firsts]) == {}
    assert rows_of(one.id for one in firsts) == before


@pytest.mark.parametrize("second", [*LATE, "still executes"])
@pytest.mark.parametrize("late", LATE)
def test_b19_every_late_outcome_is_refused(leading: Fence, late: str, second: str) -> None:
    """By the statements alone, twenty runs each."""
    firsts = begun(zombie := uuid7())
    assert rescued(leading) == {Status.QUEUED: BATCH}
    owners = claim(limit=BATCH)
    assert {one.id for one in owners} == {one.id for one in firsts}
    with transaction.atomic(), connection.cursor() as cursor:
        runs.write_details(cursor, [runs.Detail(one.id, one.claim, 2, 5, "the second's", "") for one in owners])
        if second != "still executes":
            outcomes = [outcome_of(one, LATE[second], result='"second"') for one in owners]
            assert len(runs.complete_runs(cursor, outcomes).accepted) == BATCH
    assert_refused(zombie, firsts, late)
    assert Attempt.objects.filter(outcome=Outcome.LOST, worker=zombie).count() == BATCH


@pytest.mark.parametrize("late", LATE)
def test_b19_no_late_outcome_undoes_a_cancel(leading: Fence, late: str) -> None:
    """Half of the runs were cancelled while their first owner was away, the others while the second one executes."""
    firsts = begun(zombie := uuid7())
    cancel_runs([one.id for one in firsts[: BATCH // 2]])
    assert rescued(leading) == {Status.CANCELLED: BATCH // 2, Status.QUEUED: BATCH // 2}
    owners = claim(limit=BATCH)
    assert {one.id for one in owners} == {one.id for one in firsts[BATCH // 2 :]}
    cancel_runs([one.id for one in owners])
    assert_refused(zombie, firsts, late)
    with transaction.atomic(), connection.cursor() as cursor:
        assert len(runs.complete_runs(cursor, [outcome_of(one, OUTCOMES["retry"]) for one in owners]).accepted) == 10
    assert set(Run.objects.filter(pool="default").values_list("status", "key_held")) == {(Status.CANCELLED, False)}
    waiting = Counter(Dependency.objects.values_list("condition", "run__status"))
    assert waiting == {
        ("success", Status.SKIPPED): BATCH,
        ("failure", Status.QUEUED): BATCH,
        ("any", Status.QUEUED): BATCH,
    }


@contextmanager
def away(first: Process, proxy: TcpProxy, how: str) -> Iterator[None]:
    """SIGSTOP, to the whole group or only to the child, whose supervisor then renews for it no more; or nothing that it
    says arrives and nobody answers; or its sessions end, and it gets no others."""
    match how:
        case "frozen":
            stop: Callable[[int], None] = first.signal_all
        case "its child frozen":
            (worker,) = Worker.objects.filter(status="online")
            stop = partial(os.kill, worker.process_id)
        case _:
            proxy.go_black()
            if how == "cut off":
                proxy.cut()
            yield
            proxy.heal()
            return
    stop(signal.SIGSTOP)
    yield
    stop(signal.SIGCONT)


@pytest.mark.parametrize("second", ["has ended", "still executes"])
@pytest.mark.parametrize("cut_off", ["frozen", "its child frozen", "in the dark", "cut off"])
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
            ours = Run.objects.filter(pk__in=[result.id for result in results.values()])  # not what is due each minute
            wait_until(lambda ours=ours: not ours.filter(started_at=None).exists(), what="the rows tell of it")
            zombie = row(results["success"]).worker_id
            with away(first, proxy, cut_off):
                other = fleet.worker(*options[0], **options[1])
                wait_until(lambda folder=folder: len(lines(folder / "lines")) == 10, what="all are taken over")
                if second == "has ended":
                    (folder / "end-2").touch()
                    wait_until(finished(*results.values()))
                before = rows_of(result.id for result in results.values())
                (folder / "end-1").touch()
            for result in results.values():
                wait_until(lambda first=first, refused=f"{result.id} was refused": refused in first.output)
            if second == "has ended":
                assert rows_of(result.id for result in results.values()) == before
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
