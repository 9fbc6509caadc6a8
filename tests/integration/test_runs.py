"""The statements on runs: claims by token, completion, taking back, staging, cancelling."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, connections
from django.utils import timezone

from cronoq_django.models import Attempt, Pool, Run
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.store import runs
from cronoq_django.store.controls import Cancelled, cancel_runs
from cronoq_django.store.runs import Completion, NewRun
from cronoq_django.store.session import connect, transaction

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = timedelta(seconds=30)
WORKER, OTHER = uuid4(), uuid4()


@pytest.fixture
def cursor() -> Iterator[Any]:
    with connection.cursor() as cursor:
        yield cursor


def add(cursor: Any, *new: NewRun) -> list[UUID]:
    return list(runs.insert_runs(cursor, new))


def a_run(**columns: Any) -> NewRun:
    return NewRun(**{"script": "tests.tasks.add", "args": "[1]", **columns})


def claim(cursor: Any, *, worker: UUID = WORKER, limit: int = 10, **options: Any) -> list[runs.ClaimedRun]:
    return runs.claim_runs(cursor, worker=worker, limit=limit, lease=LEASE, **{"pool": "default", **options})


def succeeded(claimed: runs.ClaimedRun, result: str = "1", **options: Any) -> Completion:
    return Completion(
        id=claimed.id,
        claim=claimed.claim,
        outcome=Outcome.SUCCEEDED,
        status=Status.SUCCEEDED,
        result=result,
        took=timedelta(0),
        **options,
    )


def failed(claimed: runs.ClaimedRun, **options: Any) -> Completion:
    columns = {"status": Status.FAILED, "reason": Reason.ERROR, "error": "no", "took": timedelta(seconds=1), **options}
    return Completion(id=claimed.id, claim=claimed.claim, outcome=Outcome.FAILED, **columns)


def complete(cursor: Any, *completions: Completion) -> dict[UUID, Status]:
    """The states of the runs whose outcome was accepted; none may be busy."""
    completed = runs.complete_runs(cursor, completions)
    assert not completed.busy
    return {id_: status for (id_, _), status in completed.accepted.items()}


def test_a_run_due_later_is_scheduled(cursor: Any) -> None:
    now, later = add(cursor, a_run(), a_run(due_at=timezone.now() + timedelta(hours=1)))
    assert Run.objects.get(pk=now).status == Status.QUEUED
    assert Run.objects.get(pk=later).status == Status.SCHEDULED


def test_inserting_the_same_run_again_meets_its_own_row(cursor: Any) -> None:
    """The commit's answer was lost; the retry made a second run."""
    run = a_run()
    assert len(runs.insert_runs(cursor, [run])) == 1
    assert runs.insert_runs(cursor, [run]) == {}
    assert Run.objects.count() == 1


def test_claims_come_by_priority_then_due_time_then_id(cursor: Any) -> None:
    due = timezone.now() - timedelta(minutes=1)
    first, second = a_run(due_at=due), a_run(due_at=due)
    early = a_run(due_at=due - timedelta(minutes=1))  # due earlier, inserted later
    urgent = a_run(priority=5)
    add(cursor, first, second, early, urgent)
    assert [claim(cursor, limit=1)[0].id for _ in range(4)] == [urgent.id, early.id, first.id, second.id]
    assert claim(cursor) == []


def test_a_claim_takes_no_more_than_asked_and_only_from_its_pool(cursor: Any) -> None:
    add(cursor, *(a_run() for _ in range(10)), *(a_run(pool="mail") for _ in range(2)))
    assert len(claim(cursor, limit=3)) == 3
    assert len(claim(cursor, pool="mail", limit=5)) == 2
    assert Run.objects.filter(status=Status.QUEUED).count() == 7


def test_excluded_scripts_and_paused_pools_are_left_alone(cursor: Any) -> None:
    add(cursor, a_run())
    assert claim(cursor, excluded=["tests.tasks.add"]) == []
    Pool.objects.create(name="default", paused=True)
    assert claim(cursor) == []
    Pool.objects.update(paused=False)
    assert len(claim(cursor)) == 1


def test_two_claimers_never_share_a_run(cursor: Any) -> None:
    add(cursor, *(a_run() for _ in range(20)))
    session = connect("default", name="second claimer")
    with transaction(session) as other:
        theirs = claim(other, worker=OTHER, limit=10)  # not committed yet
        ours = claim(cursor, limit=20)
    session.close()
    assert len(theirs) == 10
    assert len(ours) == 10
    assert not {run.id for run in theirs} & {run.id for run in ours}


def test_only_the_current_claim_completes(cursor: Any) -> None:
    """A worker frozen past its lease came back and stored its result over the one of the worker that had taken over."""
    add(cursor, a_run())
    (zombie,) = claim(cursor)
    Run.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1), started_at=timezone.now())
    with_fence_less_take_back(cursor, zombie)
    (owner,) = claim(cursor, worker=OTHER)
    assert complete(cursor, succeeded(zombie, '"zombie"')) == {}
    assert runs.mark_started(cursor, [(zombie.id, zombie.claim, timedelta(0))]) == set()
    assert complete(cursor, succeeded(owner, '"owner"')) == {owner.id: Status.SUCCEEDED}
    assert complete(cursor, failed(zombie)) == {}
    run = Run.objects.get()
    assert (run.result, run.status, run.worker_id, run.attempts) == ("owner", Status.SUCCEEDED, OTHER, 2)
    assert [(a.outcome, a.worker_id) for a in Attempt.objects.order_by("id")] == [
        ("lost", WORKER),
        ("succeeded", OTHER),
    ]


def with_fence_less_take_back(cursor: Any, claimed: runs.ClaimedRun) -> None:
    taken = runs.take_back_from(cursor, WORKER)
    assert taken == {claimed.id: Status.QUEUED}


def test_a_success_at_first_try_writes_no_attempt(cursor: Any) -> None:
    add(cursor, a_run())
    runs.complete_runs(cursor, [succeeded(claim(cursor)[0])])
    run = Run.objects.get()
    assert (run.status, run.result, run.attempts, run.claim) == (Status.SUCCEEDED, 1, 1, None)
    assert not Attempt.objects.exists()


def test_a_retry_waits_for_its_delay_and_counts(cursor: Any) -> None:
    add(cursor, a_run())
    (claimed,) = claim(cursor)
    completion = failed(claimed, status=Status.QUEUED, reason="", delay=timedelta(minutes=5))
    assert complete(cursor, completion) == {claimed.id: Status.SCHEDULED}
    run = Run.objects.get()
    assert run.attempts == 1
    assert timedelta(minutes=4) < run.due_at - timezone.now() <= timedelta(minutes=5)
    assert Attempt.objects.get().outcome == Outcome.FAILED


def test_a_day_is_24_hours_in_a_session_of_any_zone(cursor: Any) -> None:
    """Behind a pooler the session's zone may be anybody's; a day added there was an hour short, once a year."""
    add(cursor, a_run())
    (claimed,) = claim(cursor)
    cursor.execute("SET TimeZone = 'America/New_York'")
    completion = failed(claimed, status=Status.QUEUED, reason="", delay=timedelta(days=1))
    before = datetime(2025, 3, 8, 20, tzinfo=UTC)
    runs.complete_runs(cursor, [completion], now=before)
    cursor.execute("SET TimeZone = 'UTC'")
    assert Run.objects.get().due_at == before + timedelta(days=1)


def test_all_that_a_dead_worker_had_is_taken_back(cursor: Any) -> None:
    """However much: what was left over after a thousand had to wait for its leases, and the rows had to tell."""
    add(cursor, *[a_run() for _ in range(2500)])
    claimed = claim(cursor, limit=2500)
    taken_back = runs.take_back_from(cursor, WORKER, begun=[one.claim for one in claimed[:5]])
    assert taken_back.keys() == {one.id for one in claimed}
    assert Run.objects.filter(status=Status.QUEUED, attempts=0).count() == 2495
    assert Run.objects.filter(status=Status.QUEUED, attempts=1).count() == 5


def test_suspects_are_claimed_one_at_a_time(cursor: Any) -> None:
    """Runs that were lost together came back together, and were lost together again: beside one that killed its worker
    three times, three others failed."""
    suspects = set(add(cursor, a_run(), a_run(), a_run()))
    for _ in range(2):
        claimed = claim(cursor)
        assert {one.id for one in claimed} == suspects
        assert not any(one.is_suspect for one in claimed)
        runs.take_back_from(cursor, WORKER, begun=[one.claim for one in claimed])
    (fresh,) = add(cursor, a_run())
    first, other = claim(cursor)
    assert first.is_suspect
    assert (first.id in suspects, other.id) == (True, fresh)
    assert claim(cursor, suspects=False) == []  # as long as that one executes
    (second,) = claim(cursor)
    assert second.id in suspects - {first.id}
    release = {"outcome": Outcome.RELEASED, "status": Status.QUEUED, "counts": False}
    complete(cursor, Completion(id=second.id, claim=second.claim, **release))
    (again,) = claim(cursor)
    assert again.is_suspect  # also after it was given back
    complete(cursor, failed(again, status=Status.QUEUED, reason="", counts=False))
    assert len(claim(cursor)) == 2  # one that ended by itself is none any more, beside the third


def test_a_release_that_never_began_leaves_no_trace(cursor: Any) -> None:
    add(cursor, a_run())
    (claimed,) = claim(cursor)
    release = Completion(
        id=claimed.id, claim=claimed.claim, outcome=Outcome.RELEASED, status=Status.QUEUED, counts=False
    )
    assert complete(cursor, release) == {claimed.id: Status.QUEUED}
    assert (Run.objects.get().attempts, Run.objects.get().started_at) == (0, None)
    assert not Attempt.objects.exists()


def test_a_run_lost_before_it_was_seen_to_begin_is_not_charged_and_goes_alone_next(cursor: Any) -> None:
    add(cursor, a_run(max_attempts=2))
    claim(cursor)
    assert list(runs.take_back_from(cursor, WORKER).values()) == [Status.QUEUED]
    run = Run.objects.get()
    assert (run.attempts, run.solo) == (0, True)
    claim(cursor)
    assert Run.objects.get().started_at is not None  # from now on, a lost attempt counts
    assert list(runs.take_back_from(cursor, WORKER).values()) == [Status.QUEUED]
    claim(cursor)
    assert list(runs.take_back_from(cursor, WORKER).values()) == [Status.FAILED]
    run = Run.objects.get()
    assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.LOST, 2)
    assert [attempt.outcome for attempt in Attempt.objects.all()] == [Outcome.LOST] * 2


def test_cancelling_takes_what_waits_and_asks_what_runs(cursor: Any) -> None:
    add(cursor, a_run(), a_run(), a_run(due_at=timezone.now() + timedelta(hours=1)))
    (running,) = claim(cursor, limit=1)
    everything = list(Run.objects.values_list("pk", flat=True))
    assert len(runs.cancel_waiting(cursor, ids=everything)) == 2
    assert runs.request_cancel(cursor, everything) == [running.id]
    assert runs.request_cancel(cursor, everything) == []  # asked once
    completion = failed(running, status=Status.QUEUED, reason="", delay=timedelta(0))
    assert complete(cursor, completion) == {running.id: Status.CANCELLED}  # no further attempt
    assert set(Run.objects.values_list("status", "reason")) == {("cancelled", "requested")}


def test_a_success_beats_a_cancel(cursor: Any) -> None:
    add(cursor, a_run())
    (running,) = claim(cursor)
    runs.request_cancel(cursor, [running.id])
    assert complete(cursor, succeeded(running)) == {running.id: Status.SUCCEEDED}


def test_a_cancelled_run_that_is_lost_stays_cancelled(cursor: Any) -> None:
    add(cursor, a_run())
    (running,) = claim(cursor)
    runs.request_cancel(cursor, [running.id])
    assert list(runs.take_back_from(cursor, WORKER).values()) == [Status.CANCELLED]


def test_renewing_prolongs_the_lease_of_ones_own_runs(cursor: Any) -> None:
    add(cursor, a_run(), a_run())
    (mine,) = claim(cursor, limit=1)
    (theirs,) = claim(cursor, worker=OTHER, limit=1)
    before = Run.objects.get(pk=theirs.id).lease_expires_at
    runs.request_cancel(cursor, [mine.id])
    renewed = runs.renew_leases(cursor, worker=WORKER, lease=timedelta(hours=1))
    assert renewed == [(mine.id, mine.claim, True)]
    assert Run.objects.get(pk=mine.id).lease_expires_at > timezone.now() + timedelta(minutes=59)
    assert Run.objects.get(pk=theirs.id).lease_expires_at == before


def test_text_that_postgresql_cannot_hold_is_replaced(cursor: Any) -> None:
    """A NUL in an error made the very write fail that was to end the run; it stayed running for an hour."""
    add(cursor, a_run())
    (claimed,) = claim(cursor)
    runs.complete_runs(cursor, [failed(claimed, error="a\0b\ud83d", traceback="x" * 200_000)])
    assert Run.objects.get().error == "a\ufffdb\ufffd"
    assert len(Attempt.objects.get().traceback) == 64_000


def test_an_open_enqueue_does_not_hold_up_claims(cursor: Any) -> None:
    """Rows referred to by an open transaction could not be claimed, since the claim asked for FOR UPDATE."""
    (parent,) = add(cursor, a_run())
    session = connect("default", name="open enqueue")
    with transaction(session) as other:
        runs.insert_runs(other, [a_run(parent_id=parent, root_id=parent)])
        assert [one.id for one in claim(cursor)] == [parent]
    session.close()
    connections["default"].close()


@pytest.mark.parametrize("zombie_first", [True, False])
def test_a_stale_outcome_in_the_same_batch_as_the_current_one_is_dropped(cursor: Any, zombie_first: bool) -> None:
    """A process that owned the run twice sent both outcomes together; the first of them was taken for the owner's."""
    add(cursor, a_run())
    (zombie,) = claim(cursor)
    Run.objects.update(started_at=timezone.now())
    runs.take_back_from(cursor, WORKER)
    (owner,) = claim(cursor)
    batch = [succeeded(zombie, '"zombie"'), failed(owner, status=Status.QUEUED, reason="")]
    assert complete(cursor, *(batch if zombie_first else reversed(batch))) == {owner.id: Status.QUEUED}
    assert Run.objects.get().result is None
    assert [attempt.claim for attempt in Attempt.objects.order_by("id")] == [zombie.claim, owner.claim]


def test_a_locked_run_holds_up_no_other(cursor: Any) -> None:
    """Somebody held one run in a console: its worker wrote no outcome any more, and claimed nothing."""
    add(cursor, a_run(), a_run(), a_run(due_at=timezone.now() + timedelta(hours=1)))
    held, other = claim(cursor)
    console = connect("default", name="console")
    with transaction(console) as theirs:
        theirs.execute("UPDATE cronoq_run SET priority = 1 WHERE id = %s OR status = 'scheduled'", (held.id,))
        completed = runs.complete_runs(cursor, [succeeded(held), succeeded(other)])
        assert completed.accepted == {(other.id, other.claim): Status.SUCCEEDED}
        assert completed.busy == {(held.id, held.claim)}
        assert runs.mark_started(cursor, [(held.id, held.claim, timedelta(0))]) == set()
    console.close()
    assert complete(cursor, succeeded(held)) == {held.id: Status.SUCCEEDED}


def test_the_last_attempt_counts_from_its_claim(cursor: Any) -> None:
    """A run that must not be repeated was, when its worker died before it had noted that it began."""
    add(cursor, a_run(max_attempts=1), a_run(max_attempts=2))
    once, twice = claim(cursor)
    assert Run.objects.get(pk=once.id).started_at is not None
    assert Run.objects.get(pk=twice.id).started_at is None


def test_a_cancel_waits_for_what_is_changing_at_that_moment(cursor: Any) -> None:
    """A run that was being claimed was reported as ended, and ran on."""
    (waiting,) = add(cursor, a_run())
    claimer = connect("default", name="claimer")
    locked, go_on = threading.Event(), threading.Event()

    def claim_slowly() -> None:
        with transaction(claimer) as theirs:
            claim(theirs)
            locked.set()
            go_on.wait(60)

    thread = threading.Thread(target=claim_slowly)
    thread.start()
    assert locked.wait(60)
    assert cancel_runs([waiting]) == Cancelled(cancelled=0, requested=0, ended=0, busy=1)
    go_on.set()
    assert cancel_runs([waiting]) == Cancelled(cancelled=0, requested=1, ended=0, busy=0)
    thread.join()
    claimer.close()
