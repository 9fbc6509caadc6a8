"""What waits for a run, while that run ends: in every order that can be, on real sessions.

Everywhere people met children that waited for ever for a parent that had long ended: it had ended in the instant in
which the child was committed, or two parents had ended together and each thought that the other would see to it. No
such instant is left to chance here. Each part of a race is a thread with a session of its own that stops before its
next statement until it is told to go on; all orders of all parts are run, and a trigger in the database, which knows
nothing of this, writes down what became of each run.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection
from django.db import transaction as django_transaction
from django.utils import timezone

from cronoq_django import cancel
from cronoq_django.errors import NotFound, Unavailable, is_unavailable
from cronoq_django.models import Run
from cronoq_django.models.choices import TERMINAL, Outcome, Reason, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import runs
from cronoq_django.store.runs import Completion, NewRun
from cronoq_django.store.session import connect, transaction
from cronoq_django.store.submit import submit_runs

from .orders import PATIENT, Orders, Part, Prepare, Work, break_statement

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

REPEATS = 200
HURRIED = {"lock_timeout": "200ms", "statement_timeout": "30s"}  # for who must not wait for anybody
CONDITIONS = ("success", "failure", "any")

WITNESS = """
CREATE UNLOGGED TABLE became (number int GENERATED ALWAYS AS IDENTITY, run uuid, before text, after text);
CREATE FUNCTION note_became() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO became (run, before, after) VALUES (NEW.id, OLD.status, NEW.status);
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER UPDATE ON cronoq_run FOR EACH ROW WHEN (OLD.status <> NEW.status)
EXECUTE FUNCTION note_became()
"""
FORGET = "DROP TRIGGER witness ON cronoq_run; DROP FUNCTION note_became; DROP TABLE became"


class Race(Orders):
    """With runs of its own, and a witness of what becomes of them."""

    def __init__(self) -> None:
        super().__init__(sessions=3, witness=WITNESS, forget=FORGET)

    # Rows, and what became of them

    def add(self, status: str = "running", **columns: Any) -> UUID:
        """A run of its own worker, claimed once if it is running."""
        id_ = uuid7()
        if status == "running":
            columns = {"worker_id": id_, "claim": 1, "lease_expires_at": "infinity", "started_at": "now", **columns}
        if status in TERMINAL:
            columns = {"finished_at": "yesterday", **columns}
        values = {"id": id_, "trigger": "enqueue", "script": "tests.tasks.add", "args": "[1]", "kwargs": "{}",
                  "status": status, "max_attempts": 1, **columns}  # fmt: skip
        names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
        self.referee.execute(f"INSERT INTO cronoq_run ({names}) VALUES ({marks})", list(values.values()))
        return id_

    def add_waiting(self, *prerequisites: UUID, on: str = "success") -> UUID:
        id_ = uuid7()
        with transaction(self.referee) as cursor:
            submit_runs(cursor, [waiting(id_)], {id_: dict.fromkeys(prerequisites, on)})
        return id_

    def status(self, run: UUID) -> str | None:
        row = self.referee.execute("SELECT status FROM cronoq_run WHERE id = %s", (run,)).fetchone()
        return row[0] if row else None

    def became(self, run: UUID) -> list[tuple[str, str]]:
        """Each change of its status, as the witness saw it."""
        return self.referee.execute(
            "SELECT before, after FROM became WHERE run = %s ORDER BY number", (run,)
        ).fetchall()

    def open_dependencies(self, run: UUID) -> int:
        row = self.referee.execute(
            "SELECT count(*) FROM cronoq_dependency WHERE run_id = %s AND settled_at IS NULL", (run,)
        ).fetchone()
        return row[0] if row else 0

    def settle(self) -> None:
        """As the leader does, until there is nothing more to do."""
        for _ in range(20):
            with transaction(self.referee) as cursor:
                runs.settle(cursor, limit=100)
            if self.referee.execute("SELECT count(*) FROM cronoq_unsettled").fetchone() == (0,):
                return
        pytest.fail("the outbox is not emptied")

    def do(self, work: Work) -> Any:
        with transaction(self.referee) as cursor:
            return work(cursor)


@pytest.fixture
def race(transactional_db: None) -> Iterator[Race]:
    race = Race()
    yield race
    race.close()


def waiting(id_: UUID) -> NewRun:
    return NewRun(id=id_, script="tests.tasks.add", args="[1]", waits=True)


def submitting(run: UUID, prerequisite: UUID, condition: str) -> Work:
    return lambda cursor: submit_runs(cursor, [waiting(run)], {run: {prerequisite: condition}})


def completing(run: UUID, outcome: Outcome, status: Status, reason: str = "") -> Work:
    completion = Completion(id=run, claim=1, outcome=outcome, status=status, reason=reason, took=timedelta(seconds=1))
    return lambda cursor: runs.complete_runs(cursor, [completion])


def succeeding(run: UUID) -> Work:
    return completing(run, Outcome.SUCCEEDED, Status.SUCCEEDED)


def failing(run: UUID) -> Work:
    return completing(run, Outcome.FAILED, Status.FAILED, Reason.ERROR)


def leader() -> Part:
    """A look at the outbox, and the time until it commits, for which it holds what has not ended."""
    return Part("leader", lambda cursor: runs.settle(cursor, limit=100), joined=("lock_dependants", "settle_runs"))


def ender(work: Work, name: str = "ender") -> Part:
    """Whoever ends a run: the statement that does, what it does about dependants, and its commit."""
    return Part(name, work, joined=("settle_runs",))


@dataclass(frozen=True)
class End:
    """A way to end a run: the row before, the work, and how that ended."""

    row: Callable[[Race], tuple[UUID, Work]]
    status: Status


def _running(work: Callable[[UUID], Work], **columns: Any) -> Callable[[Race], tuple[UUID, Work]]:
    def row(race: Race) -> tuple[UUID, Work]:
        run = race.add(**columns)
        return run, work(run)

    return row


def _skipped(race: Race) -> tuple[UUID, Work]:
    """The prerequisite waits itself, for one that fails."""
    first = race.add()
    return race.add_waiting(first), failing(first)


ENDS = {
    "success": End(_running(succeeding), Status.SUCCEEDED),
    "failure": End(_running(failing), Status.FAILED),
    "timeout": End(
        _running(lambda run: completing(run, Outcome.TIMED_OUT, Status.FAILED, Reason.TIMEOUT)), Status.FAILED
    ),
    "quarantine by its worker": End(
        _running(lambda run: completing(run, Outcome.FAILED, Status.FAILED, Reason.QUARANTINED)), Status.FAILED
    ),
    "quarantine by the leader": End(
        _running(lambda run: lambda cursor: runs.quarantine(cursor, limit=9), status="queued", args="7"), Status.FAILED
    ),
    "kill": End(_running(lambda run: lambda cursor: runs.take_back_from(cursor, run)), Status.FAILED),
    "cancel": End(
        _running(lambda run: lambda cursor: runs.cancel_waiting(cursor, ids=[run]), status="queued"), Status.CANCELLED
    ),
    "cancel of a running one": End(
        _running(
            lambda run: completing(run, Outcome.CANCELLED, Status.CANCELLED, Reason.REQUESTED),
            cancel_requested_at="now",
        ),
        Status.CANCELLED,
    ),
    "expiry": End(
        _running(lambda run: lambda cursor: runs.expire(cursor, limit=9), status="queued", expires_at="yesterday"),
        Status.FAILED,
    ),
    "skip": End(_skipped, Status.SKIPPED),
}  # fmt: skip


def becomes(ended: Status | None, condition: str) -> str:
    """What becomes of a run that waits for one that ended so; None: it was deleted."""
    if condition == "any":
        return "queued"
    return "queued" if (ended == Status.SUCCEEDED) == (condition == "success") else "skipped"


# A dependant is committed while its prerequisite ends


def committed_while_it_ends(race: Race, end: End, first: int = 0) -> Prepare:
    """The submitter's transaction and the ender's open together, commits in both orders, and the leader looking at each
    point in between: also between the ender's lock and its commit. The conditions take turns, from the `first` on."""
    conditions = cycle([*CONDITIONS[first:], *CONDITIONS[:first]])

    def prepare() -> tuple[list[Part], Callable[[], None]]:
        condition, (prerequisite, work) = next(conditions), end.row(race)
        run = uuid7()

        def check() -> None:
            if race.status(prerequisite) not in TERMINAL:  # busy: the leader looked at it. It is sent again
                race.do(work)
                race.seen["busy"] += 1
            race.settle()
            assert race.status(prerequisite) == end.status
            assert race.became(run) == [("blocked", becomes(end.status, condition))], condition
            assert race.open_dependencies(run) == 0

        submitter = Part(
            "submitter", submitting(run, prerequisite, condition), joined=("insert_runs", "insert_dependencies")
        )
        return [submitter, ender(work), leader()], check

    return prepare


@pytest.mark.parametrize("end", ENDS)
def test_a_run_committed_while_what_it_waits_for_ends_is_settled_once(race: Race, end: str) -> None:
    count = turn = 0
    while count < REPEATS:  # three times, mostly: so in each order with each condition
        count += race.every_order(committed_while_it_ends(race, ENDS[end], turn % 3))
        turn += 1
    assert race.seen["submitter done"] == race.seen["ender done"] == count
    assert race.seen["busy"] > 0  # the leader did come between
    assert not race.waits


def test_so_it_is_at_each_statement(race: Race) -> None:
    """The same for a success, with the ender and the leader stopped before each statement and each commit."""
    conditions = cycle(CONDITIONS)

    def prepare() -> tuple[list[Part], Callable[[], None]]:
        condition, prerequisite, run = next(conditions), race.add(), uuid7()

        def check() -> None:
            if race.status(prerequisite) not in TERMINAL:
                race.do(succeeding(prerequisite))
            race.settle()
            assert race.became(run) == [("blocked", becomes(Status.SUCCEEDED, condition))], condition

        return [
            Part("submitter", submitting(run, prerequisite, condition), joined=("insert_runs", "insert_dependencies")),
            Part("ender", succeeding(prerequisite)),
            Part("leader", lambda cursor: runs.settle(cursor, limit=100)),
        ], check

    assert race.every_order(prepare) >= REPEATS
    assert not race.waits


@pytest.mark.parametrize("status", ["running", "succeeded"])
def test_a_run_committed_while_what_it_waits_for_is_deleted_is_refused_or_skipped(race: Race, status: str) -> None:
    """Whoever deletes waits for the submitter, or the submitter for whoever deletes: it is then told that there is no
    such run."""

    conditions = cycle([*CONDITIONS, "any"])  # not as many as divide the number of orders

    def prepare() -> tuple[list[Part], Callable[[], None]]:
        condition, prerequisite, run = next(conditions), race.add(status), uuid7()

        def delete(cursor: Any) -> None:
            cursor.execute("DELETE FROM cronoq_run WHERE id = %s", (prerequisite,))

        def check() -> None:
            race.settle()
            assert race.status(prerequisite) is None
            if race.status(run) is None:
                race.seen["refused"] += 1
                return
            # The leader may have looked before the deletion, and seen how it ended.
            ways = {becomes(None, condition), *([] if status == "running" else [becomes(Status(status), condition)])}
            ((before, after),) = race.became(run)
            assert (before, after in ways) == ("blocked", True), (condition, after)

        submit = submitting(run, prerequisite, condition)
        submitter = Part("submitter", submit, joined=("insert_dependencies",), may=(NotFound,))
        return [submitter, Part("deleter", delete), leader()], check

    count = 0
    while count < REPEATS:
        count += race.every_order(prepare)
    assert set(race.waits) == {"submitter", "deleter"}
    assert 0 < race.seen["refused"] == race.seen["submitter NotFound"] < count


def test_prune_leaves_what_a_run_was_just_committed_to_wait_for(race: Race) -> None:
    """Purging old rows took the finished parent from under a child that had just been added."""

    def races(condition: str) -> Callable[[], tuple[list[Part], Callable[[], None]]]:
        def prepare() -> tuple[list[Part], Callable[[], None]]:
            prerequisite, run = race.add("succeeded"), uuid7()

            def check() -> None:
                race.settle()
                if race.status(run) is None:
                    assert race.status(prerequisite) is None
                    return
                assert race.became(run) == [("blocked", becomes(Status.SUCCEEDED, condition))], condition
                race.do(prune)
                assert race.status(prerequisite) is None  # nothing waits for it any more

            submitter = Part("submitter", submitting(run, prerequisite, condition), may=(NotFound,))
            return [submitter, Part("leader", prune)], check

        return prepare

    assert sum(race.every_order(races(condition)) for condition in CONDITIONS * 3) >= REPEATS
    assert race.seen["submitter NotFound"] > 0
    assert race.seen["submitter done"] > 0


def prune(cursor: Any) -> int:
    before = cursor.execute("SELECT now()") and cursor.fetchall()[0][0]
    return runs.prune(cursor, status=Status.SUCCEEDED, since=None, before=before, limit=100)


def test_prune_does_not_decide_by_what_it_saw_before_it_had_the_lock(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked whether anything waited for a row, and then locked it. What was committed in between was missed; that
    row was deleted, and the run that waited for it skipped, although what it waited for had succeeded.

    The instant is held open by an advisory lock within the statement, for which prune waits where it would go on."""
    old = "AND NOT run.key_held"
    break_statement(monkeypatch, "old_runs", old, f"{old} AND pg_advisory_xact_lock_shared(4711) IS NOT NULL")
    prerequisite, run = race.add("succeeded"), uuid7()
    pruner, gate = connect("default", name="pruner", settings=PATIENT), connect("default", name="gate")

    def prunes() -> None:
        with transaction(pruner) as cursor:
            prune(cursor)

    with ThreadPoolExecutor(1) as thread:
        gate.execute("SELECT pg_advisory_lock(4711)")
        pruning = thread.submit(prunes)
        while race.referee.execute(
            "SELECT %s = ANY (pg_blocking_pids(%s))", (gate.info.backend_pid, pruner.info.backend_pid)
        ).fetchone() != (True,):
            assert not pruning.done(), pruning.result()
        race.do(submitting(run, prerequisite, "success"))
        gate.execute("SELECT pg_advisory_unlock(4711)")
        pruning.result()
    pruner.close()
    gate.close()
    race.settle()
    assert race.became(run) == [("blocked", "queued")]


# The last prerequisites end together


def ended_together(race: Race, one: Callable[[UUID], Work], other: Callable[[UUID], Work], third: str) -> Prepare:
    """Two ends in two transactions, with the leader looking at what waits for both, or somebody holding its row."""

    def prepare() -> tuple[list[Part], Callable[[], None]]:
        first, last = race.add(), race.add()
        run = race.add_waiting(first, last)
        if third == "holder":
            race.settle()  # the leader has been there, and comes again only if somebody asks for it
        works = one(first), other(last)

        def hold(cursor: Any) -> None:
            cursor.execute("SELECT id FROM cronoq_run WHERE id = %s FOR NO KEY UPDATE", (run,))

        def check() -> None:
            for prerequisite, work in zip((first, last), works, strict=True):
                if race.status(prerequisite) not in TERMINAL:
                    race.do(work)
                    race.seen["busy"] += 1
            race.settle()
            assert race.became(run) == [("blocked", "queued" if one is other else "skipped")]
            assert race.open_dependencies(run) == 0

        parts = [ender(works[0], "one"), ender(works[1], "other")]
        return [*parts, leader() if third == "leader" else Part("holder", hold)], check

    return prepare


@pytest.mark.parametrize(
    ("one", "other", "third"),
    [(succeeding, succeeding, "leader"), (succeeding, failing, "leader"), (succeeding, succeeding, "holder")],
)
def test_when_the_last_two_end_together_what_waits_for_them_is_released_once(
    race: Race, one: Callable[[UUID], Work], other: Callable[[UUID], Work], third: str
) -> None:
    """Each saw the other one running, and nobody released the child."""
    count = 0
    while count < REPEATS:
        count += race.every_order(ended_together(race, one, other, third))
    assert set(race.waits) <= {"holder"}
    assert (race.seen["busy"] > 0) == (third == "leader")  # nobody who holds the dependant makes an ender wait


@pytest.mark.parametrize(
    ("name", "part", "broken"),
    [
        ("insert_dependencies", "unnest(%(late)s::uuid[])", "unnest(%(late)s::uuid[]) WHERE false"),
        ("take_unsettled", "FOR SHARE SKIP LOCKED", ""),
        ("take_unsettled", "WHERE goes_on AND id NOT IN (SELECT id FROM held)", "WHERE false"),
        ("lock_dependants", "dependants WHERE id IN (SELECT id FROM locked)", "dependants"),
    ],
)
def test_a_broken_statement_is_found_out(
    race: Race, monkeypatch: pytest.MonkeyPatch, name: str, part: str, broken: str
) -> None:
    """A race that cannot be lost proves nothing."""
    break_statement(monkeypatch, name, part, broken)
    with pytest.raises(AssertionError, match="in the order"):
        race.every_order(committed_while_it_ends(race, ENDS["success"]))
        race.every_order(ended_together(race, succeeding, succeeding, "holder"))


# Who keeps a transaction open is in nobody's way


def test_an_open_submitter_delays_nothing_that_happens_to_what_its_run_waits_for(race: Race) -> None:
    """An enqueue within a long request made the worker's completion of the parent wait for the request's end."""
    submitter = connect("default", name="submitter")
    worker = connect("default", name="worker", settings=HURRIED)
    for _ in range(REPEATS):
        running, queued, ended = race.add(), race.add("queued"), race.add("succeeded")
        run = uuid7()
        with transaction(submitter) as theirs:
            submit_runs(theirs, [waiting(run)], {run: dict.fromkeys((running, queued, ended), "any")})
            with transaction(worker) as cursor:
                assert [row[0] for row in runs.renew_leases(cursor, worker=running, lease=timedelta(hours=1))] == [
                    running
                ]
                assert runs.request_cancel(cursor, [running]) == [running]
            with transaction(worker) as cursor:
                assert succeeding(running)(cursor).accepted == {(running, 1): Status.SUCCEEDED}
                assert runs.cancel_waiting(cursor, ids=[queued]) == [queued]
            with transaction(worker) as cursor:
                assert runs.settle(cursor, limit=100) == 0
                assert prune(cursor) == 0
        assert race.status(ended) == "succeeded"
        race.settle()
        assert race.became(run) == [("blocked", "queued")]
        race.do(prune)
        assert race.status(ended) is None  # the submitter alone had kept it
    submitter.close()
    worker.close()


def test_an_open_claim_and_an_open_submitter_do_not_meet(race: Race) -> None:
    """A claim that took the row in the mode of a deletion made waiting enqueues out of all that refer to it."""
    submitter, worker = (connect("default", name=name, settings=HURRIED) for name in ("submitter", "worker"))
    for first in ("submitter", "worker") * (REPEATS // 2):
        prerequisite, run = race.add("queued"), uuid7()
        submit = submitting(run, prerequisite, "success")

        def claim(cursor: Any) -> list[UUID]:
            claimed = runs.claim_runs(cursor, worker=uuid7(), pool="default", limit=9, lease=timedelta(hours=1))
            return [one.id for one in claimed]

        with transaction(submitter if first == "submitter" else worker) as before:
            if first == "submitter":
                submit(before)
                with transaction(worker) as cursor:
                    assert claim(cursor) == [prerequisite]
            else:
                assert claim(before) == [prerequisite]
                with transaction(submitter) as cursor:
                    submit(cursor)
        race.settle()
        assert race.became(run) == []
    submitter.close()
    worker.close()


def test_an_open_cancel_of_what_waits_does_not_delay_the_end_of_what_it_waits_for(race: Race) -> None:
    """Somebody had cancelled the child in a console and gone for lunch; the parent's worker could not finish."""
    console = connect("default", name="console")
    worker = connect("default", name="worker", settings=HURRIED)
    for commits in (True, False) * (REPEATS // 2):
        prerequisite = race.add()
        run = race.add_waiting(prerequisite)
        race.settle()
        with suppress(ZeroDivisionError), transaction(console) as theirs:
            assert runs.cancel_waiting(theirs, ids=[run]) == [run]
            with transaction(worker) as cursor:
                assert succeeding(prerequisite)(cursor).accepted == {(prerequisite, 1): Status.SUCCEEDED}
            with transaction(worker) as cursor:
                runs.settle(cursor, limit=100)  # it comes back until the console lets go
            assert race.became(run) == []
            if not commits:
                raise ZeroDivisionError
        race.settle()
        assert race.became(run) == [("blocked", "cancelled" if commits else "queued")]
    console.close()
    worker.close()


# Snapshots of whole transactions


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_who_ends_a_run_in_a_transaction_with_an_old_snapshot_leaves_nothing_waiting(
    race: Race, how: str, level: str
) -> None:
    """A request began its transaction, another one added a child to a run, and then the first one cancelled that run
    as of its own snapshot, in which there was no child. It may be refused; the child may not wait for ever."""
    refused: Exception | None = None
    prerequisite = race.add("queued")
    try:
        with django_transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            assert Run.objects.filter(pk=prerequisite).exists()  # from here on it has its snapshot
            run = race.add_waiting(prerequisite)
            race.settle()  # its prerequisite has not ended, and nobody has it: the leader has done its duty
            if how == "cancel":
                cancel(prerequisite)
            else:
                Run.objects.filter(pk=prerequisite).delete()
    except (Unavailable, OperationalError) as error:
        refused = error
    race.settle()
    if refused is None:
        assert race.became(run) == [("blocked", "skipped")]
    else:
        assert is_unavailable(refused)  # it is to be tried again
        assert race.status(prerequisite) == "queued"


# Everybody at once


def test_all_at_once_nobody_waits_for_anybody_and_nothing_is_left_waiting(race: Race) -> None:
    """Completing, cancelling, taking back, submitting and settling over one graph took their locks in different orders,
    and the server ended somebody's transaction as a deadlock."""
    deadlocks = _deadlocks(race)
    known = [race.add("queued") for _ in range(50)]
    until = time.monotonic() + 7
    done: Counter[str] = Counter()
    errors: list[BaseException] = []

    def works(seed: int, what: str) -> None:
        chance = random.Random(seed)
        session = connect("default", name=what, settings={"lock_timeout": "2s"})
        me = uuid7()
        try:
            while time.monotonic() < until:
                with transaction(session) as cursor:
                    done[what] += _HAMMERS[what](cursor, chance, me, known)
        except BaseException as error:
            errors.append(error)
        finally:
            session.close()

    hammers = ["work", "work", "cancel", "settle", "settle", "submit", "submit", "die"]
    with ThreadPoolExecutor(len(hammers)) as threads:
        for seed, what in enumerate(hammers):
            threads.submit(works, seed, what)
    assert errors == []
    assert set(done) == set(_HAMMERS)
    assert min(done.values()) >= 5, done
    session = connect("default", name="last", settings=PATIENT)
    chance, me = random.Random(0), uuid7()
    with transaction(session) as cursor:  # what the workers still had when they stopped
        runs.rescue(cursor, limit=1000, now=timezone.now() + timedelta(hours=1))
    for _ in range(10_000):
        with transaction(session) as cursor:
            left = _work(cursor, chance, me, known, limit=1000) + runs.settle(cursor, limit=1000)
        if not left:
            break
    session.close()
    open_ones = race.referee.execute("SELECT status, count(*) FROM cronoq_run WHERE finished_at IS NULL GROUP BY 1")
    assert open_ones.fetchall() == []
    twice = "SELECT run FROM became WHERE before = 'blocked' GROUP BY run HAVING count(*) > 1"
    assert race.referee.execute(twice).fetchall() == []
    assert _wrongly_released(race) == []
    assert _deadlocks(race) == deadlocks
    print(f"all at once: {dict(done)}")


def _work(cursor: Any, chance: random.Random, me: UUID, known: list[UUID], limit: int = 8) -> int:
    """A round of a worker: what it has, succeeds or fails; then it claims."""
    owned = runs.owned_runs(cursor, me)
    ends = [chance.choice(((Outcome.SUCCEEDED, Status.SUCCEEDED, ""), (Outcome.FAILED, Status.FAILED, Reason.ERROR)))
            for _ in owned]  # fmt: skip
    completions = [
        Completion(id=run.id, claim=run.claim, outcome=outcome, status=status, reason=reason)
        for run, (outcome, status, reason) in zip(owned, ends, strict=True)
    ]
    runs.complete_runs(cursor, completions)
    runs.renew_leases(cursor, worker=me, lease=timedelta(seconds=9))
    claimed = runs.claim_runs(cursor, worker=me, pool="default", limit=limit, lease=timedelta(seconds=9))
    return len(completions) + len(claimed)


def _die(cursor: Any, chance: random.Random, me: UUID, known: list[UUID]) -> int:
    """Claim, and be lost with it."""
    claimed = runs.claim_runs(cursor, worker=me, pool="default", limit=2, lease=timedelta(seconds=9))
    runs.mark_started(cursor, [(one.id, one.claim, timedelta()) for one in claimed])
    ended = runs.take_back_from(cursor, me)
    return len(claimed) + len(ended)


def _cancel(cursor: Any, chance: random.Random, me: UUID, known: list[UUID]) -> int:
    some = chance.sample(known, 5)
    if chance.random() < 0.5:
        return len(runs.cancel_waiting(cursor, ids=some))
    return len(runs.request_cancel(cursor, some))


def _settle(cursor: Any, chance: random.Random, me: UUID, known: list[UUID]) -> int:
    return runs.settle(cursor, limit=20)


def _submit(cursor: Any, chance: random.Random, me: UUID, known: list[UUID]) -> int:
    """A run that waits for nothing, and some that wait for it and for others, of late ones above all."""
    new = [uuid7() for _ in range(5)]
    others = known[-60:]
    waited = {
        id_: {one: chance.choice(("any", "any", *CONDITIONS)) for one in {new[0], *chance.sample(others, 3)}}
        for id_ in new[1:]
    }
    first = NewRun(id=new[0], script="tests.tasks.add", args="[1]", max_attempts=1)
    with suppress(NotFound):  # another one's, that is not committed yet
        submit_runs(cursor, [first, *(waiting(id_) for id_ in new[1:])], waited)
        known.extend(new)
        return len(new)
    return 0


_HAMMERS = {"work": _work, "die": _die, "cancel": _cancel, "settle": _settle, "submit": _submit}


def _wrongly_released(race: Race) -> list[Any]:
    """What was queued though a prerequisite ended otherwise, or skipped though none did."""
    return race.referee.execute(
        "WITH held AS (SELECT one.run_id, bool_and(CASE one.condition WHEN 'any' THEN true "
        "WHEN 'success' THEN run.status = 'succeeded' ELSE run.status <> 'succeeded' END) AS holds "
        "FROM cronoq_dependency AS one JOIN cronoq_run AS run ON run.id = one.prerequisite_id GROUP BY 1) "
        "SELECT run, after FROM became JOIN held ON held.run_id = became.run WHERE before = 'blocked' "
        "AND after IN ('queued', 'skipped') AND (after = 'queued') <> holds"
    ).fetchall()


def _deadlocks(race: Race) -> int:
    row = race.referee.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])
