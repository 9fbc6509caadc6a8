"""Claims by id and by pool, and what their owner says after that: one set of rules, whichever way a run was claimed."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import close_old_connections, connection, transaction
from django.test.utils import CaptureQueriesContext

from cronoq_django.errors import Stale, Unavailable
from cronoq_django.models import Attempt, Pool, Run, Worker
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import (
    claim_next_queued,
    claim_run_by_id,
    claim_runs_by_ids,
    complete_runs,
    create_run,
    get_run,
    heartbeat_worker,
    register_worker,
    renew_run_lease,
    runs,
    session,
    update_run,
)
from cronoq_django.store.records import TaskRecord, nanoseconds
from cronoq_django.store.runs import Completion
from cronoq_django.store.submit import submit_runs

pytestmark = pytest.mark.django_db(transaction=True)

WORKER, OTHER = uuid7(), uuid7()
HOUR = timedelta(hours=1)
Claim = Callable[..., TaskRecord | None]


def by_pool(id_: UUID, **options: Any) -> TaskRecord | None:
    return claim_next_queued(**{"worker": WORKER, **options})


def by_id(id_: UUID, **options: Any) -> TaskRecord | None:
    return claim_run_by_id(id_, **{"worker": WORKER, **options})


claims = pytest.mark.parametrize("claim", [by_pool, by_id])


def a_run(**columns: Any) -> UUID:
    """A queued run, its row then changed to what it is to be."""
    id_ = create_run("tests.tasks.add", args=[1]).id
    if columns:
        Run.objects.filter(pk=id_).update(**columns)
    return id_


def a_claimed(**columns: Any) -> TaskRecord:
    claimed = claim_run_by_id(a_run(**columns), worker=WORKER)
    assert claimed is not None
    return claimed


@contextmanager
def held(id_: UUID) -> Iterator[None]:
    """Somebody has the row open in a console."""
    console = session.connect("default", name="console")
    try:
        with session.transaction(console) as cursor:
            cursor.execute("SELECT FROM cronoq_run WHERE id = %s FOR UPDATE", (id_,))
            yield
    finally:
        console.close()


def now() -> datetime:
    return datetime.now(UTC)


@claims
@pytest.mark.parametrize(
    "columns",
    [
        {"status": "scheduled", "due_at": datetime(2100, 1, 1, tzinfo=UTC)},
        {"status": "scheduled", "due_at": datetime(2026, 1, 1, tzinfo=UTC)},  # due: for the leader to queue
        {"status": "blocked"},
        {"status": "succeeded", "finished_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"status": "running", "claim": 10**6, "worker": OTHER, "lease_expires_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"expires_at": datetime(2026, 1, 1, tzinfo=UTC)},
    ],
    ids=["later", "due but not queued", "blocked", "ended", "another's, lease over", "past its deadline"],
)
def test_what_is_not_to_be_had_stays_as_it_is(claim: Claim, columns: dict[str, Any]) -> None:
    """By its id a run was claimed that its prerequisites, or its due time, still held back."""
    id_ = a_run(**columns)
    before = get_run(id_)
    assert claim(id_) is None
    assert get_run(id_) == before


@claims
def test_a_paused_pool_gives_nothing_away(claim: Claim) -> None:
    id_ = a_run()
    pool = Pool.objects.create(name="default", paused=True)
    assert claim(id_) is None
    pool.delete()
    assert claim(id_) is not None


@claims
@pytest.mark.parametrize(
    ("columns", "begun"),
    [
        ({}, False),
        ({"max_attempts": 1}, True),
        ({"attempts": 2}, True),
        ({"solo": True}, True),
        ({"attempts": 1, "expires_at": datetime(2026, 1, 1, tzinfo=UTC)}, False),
        ({"started_at": datetime(2026, 1, 1, tzinfo=UTC)}, False),
    ],
    ids=["first", "only attempt", "last attempt", "lost unseen", "begun before its deadline", "begun once"],
)
def test_the_last_attempt_counts_from_its_claim_on(claim: Claim, columns: dict[str, Any], begun: bool) -> None:
    """One attempt was allowed; its worker died before it could say that it had begun, and it was executed again."""
    claimed = claim(a_run(**columns), lease=HOUR)
    assert claimed is not None
    assert (claimed.started_at is not None) is begun
    assert (claimed.status, claimed.worker_id) == (Status.RUNNING, WORKER)
    assert claimed == get_run(claimed.id)
    until = nanoseconds(now() + HOUR)
    assert claimed.lease_expires_at is not None
    assert until - 60 * 10**9 < claimed.lease_expires_at <= until


@claims
def test_suspects_are_claimed_one_at_a_time_and_not_beside_another(claim: Claim) -> None:
    ids = [a_run(solo=True, attempts=2) for _ in range(2)]
    assert claim(ids[0], suspects=False) is None
    found = claim_runs_by_ids(ids, worker=WORKER)
    assert [id_ for id_, one in found.items() if one] == ids[:1]
    assert claim(ids[1]) is not None


def test_a_row_in_somebodys_hands_is_not_waited_for() -> None:
    """One run that was open in a console stopped the claim of all others."""
    ids = [a_run(), a_run()]
    with held(ids[0]):
        found = claim_runs_by_ids(ids, worker=WORKER)
    assert [one is not None for one in found.values()] == [False, True]


def test_many_ids_are_one_statement() -> None:
    ids = [a_run() for _ in range(50)]
    with CaptureQueriesContext(connection) as asked:
        found = claim_runs_by_ids(ids, worker=WORKER)
    assert len(asked) == 1
    assert list(found) == ids
    assert len({one.claim for one in found.values() if one}) == 50


def test_claimers_of_the_same_ids_at_once_get_each_once() -> None:
    ids = [a_run() for _ in range(100)]
    gate = threading.Barrier(4)

    def claim(number: int) -> list[TaskRecord]:
        gate.wait()
        try:
            mine = ids if number % 2 else ids[::-1]
            return [one for one in claim_runs_by_ids(mine, worker=WORKER).values() if one]
        finally:
            close_old_connections()
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        found = [one for some in threads.map(claim, range(4)) for one in some]
    # One may be passed over by all, if each met it in another's hands; it is there for the next one.
    found += [one for one in claim_runs_by_ids(ids, worker=WORKER).values() if one]
    assert sorted(one.id for one in found) == sorted(ids)
    assert len({one.claim for one in found}) == 100


@claims
def test_a_claim_is_undone_with_the_callers_transaction(claim: Claim) -> None:
    id_ = a_run()
    with transaction.atomic():
        claimed = claim(id_)
        assert claimed is not None
        transaction.set_rollback(True)
    assert get_run(id_).status == Status.QUEUED
    with pytest.raises(Stale):
        update_run(id_, claimed.claim, status="succeeded")


@pytest.mark.parametrize(
    ("said", "became"),
    [
        ({"status": "succeeded", "result": [1]}, ("succeeded", "", 1, [])),
        ({"status": "failed", "error": "no"}, ("failed", "error", 1, ["failed"])),
        ({"status": "failed", "reason": "timeout"}, ("failed", "timeout", 1, ["timed_out"])),
        ({"status": "cancelled"}, ("cancelled", "requested", 1, ["cancelled"])),
        ({"status": "queued", "error": "busy"}, ("queued", "", 1, ["failed"])),
        ({"status": "queued", "delay": 60}, ("scheduled", "", 1, ["failed"])),
        ({"status": "queued", "delay": 60, "counts": False}, ("scheduled", "", 0, ["snoozed"])),
        ({"status": "queued", "counts": False}, ("queued", "", 0, [])),
        ({"status": "running"}, ("running", "", 0, [])),
    ],
)
def test_what_an_owner_says_is_what_a_worker_would_have_written(said: dict[str, Any], became: tuple[Any, ...]) -> None:
    run = a_claimed()
    after = update_run(run, run.claim, **said)
    outcomes = list(Attempt.objects.filter(run=run.id).values_list("outcome", flat=True))
    assert (after.status, after.reason, after.attempts, outcomes) == became
    assert after == get_run(run)
    if said["status"] == "queued" and not said.get("delay") and not said.get("counts", True):
        assert after.due_at == run.due_at  # it keeps its place
    if said["status"] != "running":
        with pytest.raises(Stale):
            update_run(run, run.claim, **said)


def test_an_attempt_that_was_the_last_one_is_not_followed_by_another() -> None:
    run = a_claimed(attempts=2)
    assert (run.attempts, run.max_attempts) == (2, 3)
    after = update_run(run, run.claim, status="queued", error="again", delay=60)
    assert (after.status, after.reason, after.error, after.attempts) == (Status.FAILED, Reason.ERROR, "again", 3)


def test_a_requested_cancel_is_seen_by_the_renewal_and_wins_over_a_failure() -> None:
    run = a_claimed()
    assert renew_run_lease(run, run.claim).cancel_requested_at is None
    Run.objects.filter(pk=run.id).update(cancel_requested_at=now())
    assert renew_run_lease(run, run.claim).cancel_requested_at is not None
    assert update_run(run, run.claim, status="failed", error="no").status == Status.CANCELLED


def test_an_owner_whose_run_was_taken_over_changes_nothing() -> None:
    """The first owner came back after its lease and wrote its result over the second one's."""
    first = a_claimed()
    with connection.cursor() as cursor:
        runs.take_back_from(cursor, WORKER, begun=())
    second = claim_run_by_id(first.id, worker=OTHER)
    assert second is not None
    for said in ({"status": "succeeded", "result": 1}, {"status": "running"}, {"status": "queued"}):
        with pytest.raises(Stale, match=str(second.claim)):
            update_run(first, first.claim, **said)
    with pytest.raises(Stale):
        renew_run_lease(first, first.claim)
    ended = Completion(id=first.id, claim=first.claim or 0, outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED)
    assert complete_runs([ended]) == runs.Completed()
    assert get_run(first) == second


def test_a_held_row_is_told_as_unavailable_and_not_as_lost() -> None:
    run = a_claimed()
    with held(run.id):
        with pytest.raises(Unavailable):
            renew_run_lease(run, run.claim)
        with pytest.raises(Unavailable):
            update_run(run, run.claim, status="succeeded")
        ended = Completion(id=run.id, claim=run.claim or 0, outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED)
        assert complete_runs([ended]).busy == {(run.id, run.claim)}
    assert update_run(run, run.claim, status="succeeded").status == Status.SUCCEEDED


def test_what_waited_for_the_run_is_seen_to() -> None:
    run, waiting = a_claimed(), runs.NewRun(script="tests.tasks.add", args="[1]", waits=True)
    with transaction.atomic(), connection.cursor() as cursor:
        submit_runs(cursor, [waiting], {waiting.id: {run.id: "success"}})
    assert claim_run_by_id(waiting.id, worker=WORKER) is None
    update_run(run, run.claim, status="succeeded")
    assert claim_run_by_id(waiting.id, worker=WORKER) is not None


def test_outcomes_are_written_read_committed_whatever_the_project_has() -> None:
    """Under REPEATABLE READ the second of two statements did not see what the first had waited for."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    try:
        with session.on_alias(None) as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("read committed",)
    finally:
        connection.close()


def test_a_worker_of_another_kind_is_asked_to_drain() -> None:
    worker = register_worker("mailer", pools={"mail": 2})
    assert register_worker("again", pools={}, worker=worker) == worker
    assert Worker.objects.get(pk=worker).name == "mailer"
    assert heartbeat_worker(worker) is False
    Worker.objects.filter(pk=worker).update(drain_requested_at=now())
    assert heartbeat_worker(worker, status="draining") is True
    assert Worker.objects.get(pk=worker).status == "draining"
