"""The claimer and the timeout watcher each updated several rows in an order of their own, and PostgreSQL ended one.

So did two that put old rows away, and a worker that finished and somebody who cancelled many. The error came now and
then, and who got it died of it. Here whoever writes several rows locks them first, and leaves alone what another one
has: nobody waits while it holds something. And who gets the error all the same comes again.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from cronoq_django.errors import Unavailable
from cronoq_django.models import Run, Worker
from cronoq_django.models.choices import Outcome, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import runs
from cronoq_django.store.runs import Completion, NewRun
from cronoq_django.store.session import transaction
from cronoq_django.store.submit import Submitted, submit_runs
from cronoq_django.worker.sessions import session_settings
from tests import tasks
from tests.fault.conftest import Fleet
from tests.fault.database import Database, Work, in_transaction, made_anew
from tests.fault.orders import Orders, Part
from tests.fault.runs import finished
from tests.fault.server import OwnServer, provided

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

LONG = timedelta(hours=1)


@pytest.fixture(scope="module")
def own() -> Iterator[OwnServer]:
    with provided(OwnServer) as server:
        yield server


@pytest.fixture
def database(own: OwnServer) -> Iterator[Database]:
    with made_anew(own) as database:
        yield database


# Orders that are known to be deadly

ONE, TWO, THREE, PARENT, OWNER = (UUID(int=number) for number in range(1, 6))
ROWS = (ONE, TWO, THREE)
HOLD = f"SELECT FROM cronoq_run WHERE id = '{TWO}' FOR UPDATE"


def add(database: Database, columns: str, values: str) -> None:
    """Three runs, where `n` is the number of each."""
    database.server.query(
        f"INSERT INTO cronoq_run (id, trigger, script, args, kwargs, {columns}) "
        f"SELECT lpad(n::text, 32, '0')::uuid, 'enqueue', 'tests.tasks.add', '[1]', '{{}}', {values} "
        "FROM generate_series(1, 3) AS n"
    )


def states(database: Database) -> list[str]:
    return [status for (status,) in database.server.query("SELECT status FROM cronoq_run ORDER BY id")]


def opposed(database: Database, hold: str, *works: Work) -> tuple[list[BaseException], list[int]]:
    """Begin works while somebody holds a row in their middle, and let that one go: the errors, and who had to wait.

    Whoever locks one row after the other has some when it comes to that one, and the next comes from the other side."""
    holder, referee = database.session("holder"), database.session("referee")
    sessions = [database.session(f"work {number}", settings=session_settings()) for number in range(len(works))]
    doing, waited = [], []
    with ThreadPoolExecutor(len(works)) as threads:
        with transaction(holder) as cursor:
            cursor.execute(hold)
            for number, work in enumerate(works):
                doing.append(threads.submit(in_transaction, sessions[number], work))
                blocked = "SELECT cardinality(pg_blocking_pids(%s)) > 0", (sessions[number].info.backend_pid,)
                while not doing[-1].done():
                    if referee.execute(*blocked).fetchone() == (True,):
                        waited.append(number)
                        break
        return [error for one in doing if (error := one.exception()) is not None], waited


def completion(run: UUID, claim: int, outcome: Outcome, status: Status, reason: str = "") -> Completion:
    return Completion(id=run, claim=claim, outcome=outcome, status=status, reason=reason, took=timedelta(seconds=1))


def complete(*ids: UUID) -> Work:
    ends = [completion(id_, 1, Outcome.SUCCEEDED, Status.SUCCEEDED) for id_ in ids]
    return lambda cursor: runs.complete_runs(cursor, ends)


def archive(status: Status) -> Work:
    return lambda cursor: runs.prune(cursor, status=status, since=None, before=timezone.now(), limit=100)


def test_b22_who_locks_one_row_after_the_other_deadlocks_in_these_orders(database: Database) -> None:
    """Else the tests that follow would prove nothing."""
    add(database, "status", "'queued'")
    update = "UPDATE cronoq_run SET error = 'x' WHERE id IN (SELECT id FROM cronoq_run ORDER BY id {} FOR UPDATE)"
    upwards, downwards = (lambda cursor, order=order: cursor.execute(update.format(order)) for order in ("ASC", "DESC"))
    (error,), waited = opposed(database, HOLD, upwards, downwards)
    assert isinstance(error, Unavailable)
    assert isinstance(error.__cause__, psycopg.errors.DeadlockDetected)
    assert waited == [0, 1]
    assert database.deadlocks() == 1


def test_b22_claimer_watcher_and_cancel(database: Database) -> None:
    """The most urgent first, the first that expires first, and as the ids come."""
    add(database, "status, priority, expires_at", "'queued', n, now() + n * interval '1 h'")
    claim = lambda cursor: runs.claim_runs(cursor, worker=OWNER, pool="default", limit=9, lease=LONG)  # noqa: E731
    expire = lambda cursor: runs.expire(cursor, limit=9, now=timezone.now() + 9 * LONG)  # noqa: E731
    cancel = lambda cursor: runs.cancel_waiting(cursor, ids=ROWS)  # noqa: E731
    assert opposed(database, HOLD, claim, expire, cancel) == ([], [])
    assert database.deadlocks() == 0
    assert database.server.query("SELECT status FROM cronoq_run ORDER BY id") == [
        ("running",),
        ("queued",),
        ("running",),
    ]


def test_b22_ender_rescuer_renewal_and_cancel(database: Database) -> None:
    columns = "status, worker_id, claim, lease_expires_at"
    add(database, columns, f"'running', '{OWNER}', 1, now() - interval '1 h'")
    works = [
        lambda cursor: runs.rescue(cursor, limit=9, now=timezone.now()),
        complete(*ROWS),
        lambda cursor: runs.renew_leases(cursor, worker=OWNER, lease=LONG),
        lambda cursor: runs.request_cancel(cursor, ROWS),
        lambda cursor: runs.take_back_from(cursor, OWNER),
    ]
    assert opposed(database, HOLD, *works) == ([], [])
    assert database.deadlocks() == 0
    assert database.server.query("SELECT status FROM cronoq_run ORDER BY id") == [
        ("queued",),
        ("running",),
        ("queued",),
    ]


def test_b22_two_archivers(database: Database) -> None:
    add(database, "status, finished_at", "'succeeded', now() - n * interval '1 h'")
    works = archive(Status.SUCCEEDED), archive(Status.SUCCEEDED)
    assert opposed(database, HOLD, *works) == ([], [])
    assert database.deadlocks() == 0
    assert database.server.query("SELECT id FROM cronoq_run") == [(TWO,)]


def test_b22_archiver_and_whoever_ends_what_the_old_ones_waited_for(database: Database) -> None:
    """Three that waited had been cancelled long ago, and went; just then, what they had waited for ended."""
    add(database, "status, reason, finished_at", "'cancelled', 'requested', now() - interval '1 h'")
    database.server.query(
        f"INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, worker_id, claim, lease_expires_at) "
        f"VALUES ('{PARENT}', 'enqueue', 'tests.tasks.add', '[1]', '{{}}', 'running', '{OWNER}', 1, 'infinity')"
    )
    for id_ in ROWS:
        database.server.query(
            "INSERT INTO cronoq_dependency (run_id, prerequisite_id, condition) VALUES (%s, %s, 'any')", id_, PARENT
        )
    # One goes through the table in the order of the ids, the other one as the rows lie in it: two, three, one.
    database.server.query("UPDATE cronoq_dependency SET condition = 'success' WHERE run_id = %s", ONE)
    hold = f"SELECT FROM cronoq_dependency WHERE run_id = '{THREE}' FOR UPDATE"
    errors, waited = opposed(database, hold, archive(Status.CANCELLED), complete(PARENT))
    assert errors == []
    assert waited == [
        0
    ]  # the leader may wait, for it has time; whoever ends a run does not, and leaves it to the leader
    assert database.server.query("SELECT run FROM cronoq_unsettled") == [(PARENT,)]
    assert database.deadlocks() == 0
    assert states(database) == ["succeeded"]
    assert database.server.query("SELECT FROM cronoq_dependency") == []


@pytest.mark.django_db(transaction=True)
def test_b22_two_that_enqueue_the_same_keys_as_the_time_of_one_is_over() -> None:
    """One had the second key when it came back for the first, which the other one had, and wanted the second."""
    orders = Orders(sessions=2, witness="SELECT 1", forget="SELECT 1")

    def prepare() -> tuple[list[Part], Callable[[], None]]:
        orders.referee.execute("DELETE FROM cronoq_run")
        orders.referee.execute(
            "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, finished_at, key, key_hash, "
            "key_held, key_until) VALUES (%s, 'enqueue', 'tests.tasks.add', '[]', '{}', 'succeeded', now(), %s, %s, "
            "true, now() - interval '1 s')",
            (uuid7(), "a", b"a"),
        )
        told: dict[str, list[Submitted]] = {"a": [], "b": []}

        def submit(*keys: str) -> Work:
            def work(cursor: Any) -> None:
                new = {key: NewRun(script="tests.tasks.add", key=key, key_hash=key.encode()) for key in keys}
                made = submit_runs(cursor, list(new.values()))
                for key, one in new.items():
                    told[key].append(made[one.id])

            return work

        def check() -> None:
            rows = "SELECT key, id FROM cronoq_run WHERE key_held AND finished_at IS NULL ORDER BY key"
            held = orders.referee.execute(rows).fetchall()
            assert [key for key, _ in held] == ["a", "b"]
            for key, holder in held:
                assert sorted((one.id, one.created) for one in told[key]) == [(holder, False), (holder, True)]

        def one_after_the_other(cursor: Any) -> None:
            submit("a")(cursor)
            submit("b")(cursor)

        joined = ("submit", "held_runs")
        return [Part("both", submit("a", "b"), joined), Part("one after the other", one_after_the_other, joined)], check

    try:
        orders.every_order(prepare)

        assert set(orders.waits) == {"both", "one after the other"}
    finally:
        orders.close()


# Who gets the error all the same


PLANT = """
CREATE SEQUENCE planted_claim; CREATE SEQUENCE planted_outcome; CREATE SEQUENCE planted_renewal;
CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    what text := CASE WHEN OLD.claim IS NULL THEN 'claim' WHEN NEW.claim IS NULL THEN 'outcome'
                      WHEN NEW.lease_expires_at <> OLD.lease_expires_at THEN 'renewal' END;
BEGIN
    IF what IS NOT NULL AND nextval('planted_' || what) <= 2 THEN  -- a sequence counts also what is rolled back
        RAISE 'planted' USING ERRCODE = '40P01';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER planted BEFORE UPDATE ON cronoq_run FOR EACH ROW EXECUTE FUNCTION planted()
"""
UPROOT = """
DROP FUNCTION planted CASCADE; DROP SEQUENCE planted_claim; DROP SEQUENCE planted_outcome; DROP SEQUENCE planted_renewal
"""


@pytest.mark.django_db(transaction=True)
def test_b22_a_worker_that_gets_the_error_comes_again(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """At a claim, at an outcome and at a renewal, twice each. (A leader does: tests/fault/test_server_trouble.py.)"""

    def count(what: str) -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT last_value FROM planted_{what}")
            return int(cursor.fetchone()[0])

    with connection.cursor() as cursor:
        cursor.execute(PLANT)
    try:
        worker = fleet.worker()
        results = [tasks.report_and_wait.enqueue(str(tmp_path / "go")), *(tasks.add.enqueue(n) for n in range(20))]
        wait_until(lambda: count("renewal") > 2)
        (tmp_path / "go").touch()
        wait_until(finished(*results))
        assert count("claim") > 2
        assert count("outcome") > 2
    finally:
        with connection.cursor() as cursor:
            cursor.execute(UPROOT)
    assert {(run.status, run.attempts) for run in Run.objects.all()} == {(Status.SUCCEEDED, 1)}
    assert worker.is_alive
    assert Worker.objects.count() == 1  # the same child all the time
    assert "planted" in worker.output
    assert "Traceback" not in worker.output
    assert worker.stop() == 0
