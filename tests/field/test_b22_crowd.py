"""Claimers, rescuers, purgers, cancels and enqueuers at once over the same runs: none of them is ended by the server.

In each order that is known to be deadly, two meet in test_b22_deadlocks.py. Here is what nobody has thought of.

One kind is PostgreSQL's own, and none of an order. SKIP LOCKED meets a row that is just being updated, the update
commits in that instant, and now it does wait, for who has locked the new version; that one may come to the row by its
old version, since its snapshot shows that one. It happens once in a minute of such a crowd. Who gets it comes again, as
workers and leaders do; what is about anything else than rows of runs is not excused, and neither are many.
"""

import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from django.utils import timezone

from cronoq_django.errors import NotFound, Unavailable
from cronoq_django.models.choices import TERMINAL, Outcome, Reason, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import runs
from cronoq_django.store.rounds import write_round
from cronoq_django.store.runs import Completion, NewRun
from cronoq_django.store.session import Session, transaction
from cronoq_django.store.submit import in_order, key_hash, submit_runs
from cronoq_django.worker.sessions import session_settings
from tests.fault.database import Database, in_transaction, made_anew
from tests.fault.orders import PATIENT
from tests.fault.server import OwnServer, provided

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

SECONDS = min(60.0, float(os.environ.get("CRONOQ_CHAOS_SECONDS", "8")))  # 60 in the long version
HASTY = timedelta(seconds=-1)  # a lease that is over already
LONG = timedelta(hours=1)

WITNESS = """
CREATE UNLOGGED TABLE ended (run uuid, status text);
CREATE UNLOGGED TABLE claimed (run uuid, claim bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    IF NEW.finished_at IS NOT NULL THEN
        INSERT INTO ended VALUES (NEW.id, NEW.status);
    ELSE
        INSERT INTO claimed VALUES (NEW.id, NEW.claim);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER UPDATE ON cronoq_run FOR EACH ROW
WHEN (NEW.status <> OLD.status AND (NEW.finished_at IS NOT NULL OR NEW.claim IS NOT NULL)) EXECUTE FUNCTION note()
"""


@pytest.fixture
def database() -> Iterator[Database]:
    with provided(OwnServer) as server, made_anew(server) as database:
        yield database


def completion(run: UUID, claim: int, outcome: Outcome, status: Status, reason: str = "") -> Completion:
    return Completion(id=run, claim=claim, outcome=outcome, status=status, reason=reason, took=timedelta(seconds=1))


class Crowd:
    """Threads that do everything at once to the same runs, each on a session of its own, until the time is over."""

    def __init__(self, database: Database, seed: int) -> None:
        self._database = database
        self._seed = seed
        self._until = 0.0
        self.known: list[UUID] = []  # what was made, as it is committed
        self.done: Counter[str] = Counter()
        self.excused: list[Unavailable] = []

    def rush(self, seconds: float, crowd: dict[Callable[..., int], int]) -> list[BaseException]:
        """So many of each; the errors."""
        self._until = time.monotonic() + seconds
        works = [work for work, number in crowd.items() for _ in range(number)]
        with ThreadPoolExecutor(len(works)) as threads:
            doing = [threads.submit(self._repeat, work, number) for number, work in enumerate(works)]
        return [error for one in doing if (error := one.exception()) is not None]

    def _repeat(self, work: Callable[..., int], number: int) -> None:
        chance = random.Random(self._seed + number)
        session = self._database.session(work.__name__, settings=session_settings() | PATIENT)
        while time.monotonic() < self._until:
            try:
                self.done[work.__name__] += work(self, session, chance)
            except Unavailable as error:
                if not is_excused(error):
                    raise
                self.excused.append(error)

    def some(self, chance: random.Random, count: int, late: int) -> list[UUID]:
        """Of so many that were made last."""
        return chance.sample(self.known[-late:], min(count, late, len(self.known)))


def is_excused(error: Unavailable) -> bool:
    """Whether it may be the deadlock of SKIP LOCKED with an update that commits in that instant, which is about rows of
    runs; or no deadlock, but the answer that a key had no holder for long enough to be told of."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.errors.DeadlockDetected):
        return cause is None and "changes hands" in str(error)
    about = cause.diag.context or ""
    return "index tuple" not in about and re.search('relation "(?!cronoq_run")', about) is None


ENDS = (
    *[(Outcome.SUCCEEDED, Status.SUCCEEDED, "")] * 3,
    (Outcome.FAILED, Status.FAILED, Reason.ERROR),
    (Outcome.FAILED, Status.QUEUED, ""),
    (Outcome.RELEASED, Status.QUEUED, ""),
)


def work_round(session: Session, chance: random.Random, worker: UUID, lease: timedelta, limit: int = 10) -> int:
    """A round of a worker, with its begun runs ended in any way, then its renewal."""
    with transaction(session) as cursor:
        owned = runs.owned_runs(cursor, worker)
        marks = runs.look_for_runs(cursor, "default")
    claim = runs.claim_of(worker=worker, pool="default", limit=limit, lease=lease, marks=marks)
    done = write_round(
        session,
        details=[runs.Detail(one.id, one.claim, 1, 2, "half", "") for one in owned],
        completions=[completion(one.id, one.claim, *chance.choice(ENDS)) for one in owned[::2]],
        begun=[(one.id, one.claim, timedelta()) for one in owned[1::2]],
        claims=[claim],
    )
    with transaction(session) as cursor:
        runs.renew_leases(cursor, worker=worker, lease=lease)
    return len(done.completed.accepted) + sum(map(len, done.claimed))


def hasty_worker(crowd: Crowd, session: Session, chance: random.Random) -> int:
    """Its leases are over at once."""
    return work_round(session, chance, UUID(int=threading.get_ident()), HASTY)


def worker(crowd: Crowd, session: Session, chance: random.Random) -> int:
    return work_round(session, chance, UUID(int=threading.get_ident()), LONG)


def rescuer(crowd: Crowd, session: Session, chance: random.Random) -> int:
    return len(in_transaction(session, lambda cursor: runs.rescue(cursor, limit=50, now=timezone.now())))


def purger(crowd: Crowd, session: Session, chance: random.Random) -> int:
    status, before = chance.choice(sorted(TERMINAL)), timezone.now() - timedelta(seconds=1)
    return int(
        in_transaction(session, lambda cursor: runs.prune(cursor, status=status, since=None, before=before, limit=50))
    )


def canceller(crowd: Crowd, session: Session, chance: random.Random) -> int:
    some = [run for run in crowd.some(chance, 40, late=200) if run.int % 4 == 0]  # the others are left to the workers
    waiting = in_transaction(session, lambda cursor: runs.cancel_waiting(cursor, ids=some))
    asked = in_transaction(session, lambda cursor: runs.request_cancel(cursor, some))
    return len(waiting) + len(asked)


def enqueuer(crowd: Crowd, session: Session, chance: random.Random) -> int:
    """Some with keys, which others want too; some that wait for others, of these and of those made before."""
    new = [
        NewRun(script="tests.tasks.add", args="[1]", priority=chance.randrange(3), max_attempts=9, waits=number > 5)
        for number in range(10)
    ]
    keyed = [
        NewRun(
            script="tests.tasks.add",
            args="[1]",
            key=key,
            key_hash=key_hash(key),
            key_for=chance.choice((None, timedelta())),
        )
        for key in chance.sample([f"key {number}" for number in range(20)], 5)
    ]
    waited = {one.id: dict.fromkeys([new[0].id, *crowd.some(chance, 2, late=50)], "any") for one in new if one.waits}
    with suppress(NotFound):  # one that was purged
        made = in_transaction(session, lambda cursor: submit_runs(cursor, in_order([*new, *keyed]), waited))
        crowd.known += [one.id for one in made.values() if one.created]
        return len(made)
    return 0


def leader(crowd: Crowd, session: Session, chance: random.Random) -> int:
    """Its other stages."""
    expired = in_transaction(session, lambda cursor: runs.expire(cursor, limit=50))
    return len(expired) + int(in_transaction(session, lambda cursor: runs.settle(cursor, limit=50)))


CROWD = {hasty_worker: 4, worker: 4, rescuer: 2, purger: 2, canceller: 2, enqueuer: 2, leader: 1}


def test_b22_nobody_deadlocks_in_the_crowd(database: Database, record_property: Callable[[str, object], None]) -> None:
    seed = int(os.environ.get("CRONOQ_CHAOS_SEED", random.randrange(2**32)))
    print(f"CRONOQ_CHAOS_SEED={seed}")
    database.server.query(WITNESS)
    crowd = Crowd(database, seed)
    assert crowd.rush(SECONDS, CROWD) == []
    assert set(crowd.done) == {work.__name__ for work in CROWD}
    assert min(crowd.done.values()) > 0, crowd.done

    finish(database)
    query = database.server.query
    ends = query("SELECT run, count(*), min(status) FROM ended GROUP BY run")
    assert {(run, times) for run, times, _ in ends} == {(run, 1) for run in crowd.known}
    left = dict(query("SELECT id, status FROM cronoq_run"))
    assert left.items() <= {run: status for run, _, status in ends}.items()
    # As many attempts as begun, at most; and who succeeded has one.
    wrong = (
        "SELECT id FROM cronoq_run AS run WHERE attempts > (SELECT count(*) FROM claimed WHERE run = run.id) "
        "OR (status = 'succeeded' AND attempts = 0) OR key_held AND key_for IS NULL"
    )
    assert query(wrong) == []
    said = f"{dict(crowd.done)}: {len(ends)} runs, {len(left)} left, in {SECONDS} s; {len(crowd.excused)} excused"
    print(said)
    record_property("deadlocks: crowd", said)
    assert database.deadlocks() <= len(crowd.excused) <= 2 + SECONDS / 5


def finish(database: Database) -> None:
    """One worker ends what is left."""
    session = database.session("last")
    me = uuid7()
    with transaction(session) as cursor:
        runs.rescue(cursor, limit=10_000, now=timezone.now() + 2 * LONG)
    for _ in range(1000):
        with transaction(session) as cursor:
            ends = [completion(one.id, one.claim, *ENDS[0]) for one in runs.owned_runs(cursor, me)]
            runs.complete_runs(cursor, ends)
            runs.settle(cursor, limit=500)
            runs.claim_runs(cursor, worker=me, pool="default", limit=500, lease=LONG)
        if database.server.query("SELECT FROM cronoq_run WHERE finished_at IS NULL LIMIT 1") == []:
            return
    pytest.fail("some runs never end")
