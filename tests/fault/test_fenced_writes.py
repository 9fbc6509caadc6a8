"""Nothing that a leader's process writes is written outside a fenced transaction: the tables themselves watch.

Each table of ours has triggers that keep, of what the leader's process writes, in which transaction it does: one that
holds the leader row, or one that doesn't. Kept apart are cronoq_leader, and cronoq_coordinator: each process's own row.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from cronoq_django.models import Job, JobState, Leader, Run
from cronoq_django.store.jobs import upsert_job
from cronoq_django.store.runs import NewRun, insert_runs
from cronoq_django.store.session import Session, connect, transaction

from .conftest import Fleet
from .slots import SECOND, clock, every_second

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

LEADERS_OWN = "leader process"  # every other session of that process, Django's for one, has this name

WATCH = """
CREATE TABLE watched (session text, tab text, op text, rows bigint, fenced boolean);

CREATE FUNCTION holds_the_leader_row() RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    me xid := pg_current_xact_id_if_assigned()::xid;
    leader record;
BEGIN
    SELECT xmin, xmax INTO leader FROM cronoq_leader;
    IF leader.xmin = me OR leader.xmax = me THEN
        RETURN true;
    END IF;
    RETURN EXISTS (SELECT FROM pg_get_multixact_members(leader.xmax) AS member WHERE member.xid = me);
EXCEPTION WHEN OTHERS THEN
    RETURN false;  -- it was no such number
END $$;

CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    session text := current_setting('application_name');
BEGIN
    IF session LIKE 'cronoq leader%' OR session = '{own}' THEN
        INSERT INTO watched
        SELECT session, TG_TABLE_NAME, TG_OP, count(*), holds_the_leader_row() FROM changed;
    END IF;
    RETURN NULL;
END $$
"""

MUST_BE_SEEN = {
    ("cronoq_attempt", "INSERT"),  # rescue
    ("cronoq_attempt", "DELETE"),  # prune
    ("cronoq_job", "INSERT"),  # sync: the jobs of the code
    ("cronoq_job", "UPDATE"),  # sync: one that is in no code any more
    ("cronoq_job_change", "INSERT"),  # sync: a job whose script is known again
    ("cronoq_job_change", "DELETE"),  # plan
    ("cronoq_job_revision", "INSERT"),  # sync
    ("cronoq_job_revision", "DELETE"),  # prune
    ("cronoq_job_state", "INSERT"),  # plan
    ("cronoq_job_state", "UPDATE"),  # fire
    ("cronoq_leader_term", "INSERT"),
    ("cronoq_leader_term", "UPDATE"),
    ("cronoq_leader_term", "DELETE"),  # prune
    ("cronoq_pool", "INSERT"),  # sync
    ("cronoq_run", "INSERT"),  # fire
    ("cronoq_run", "UPDATE"),  # stage, rescue, quarantine, plan
    ("cronoq_run", "DELETE"),  # prune
    ("cronoq_script", "INSERT"),  # sync
    ("cronoq_stage", "INSERT"),
    ("cronoq_stage", "UPDATE"),
    ("cronoq_stat", "DELETE"),  # prune
    ("cronoq_worker", "UPDATE"),  # workers
    ("cronoq_worker", "DELETE"),  # prune
}


@pytest.fixture
def watched(fleet: Fleet) -> Iterator[Callable[..., dict[tuple[str, str], int]]]:
    """What was kept: rows written, by table and operation."""
    drop = "DROP FUNCTION IF EXISTS watch, holds_the_leader_row CASCADE; DROP TABLE IF EXISTS watched"
    with connection.cursor() as cursor:
        cursor.execute(drop)
        cursor.execute(WATCH.format(own=LEADERS_OWN))
        cursor.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'cronoq\\_%' "
            "AND tablename NOT IN ('cronoq_leader', 'cronoq_coordinator')"
        )
        tables = [row[0] for row in cursor.fetchall()]
        assert {table for table, _ in MUST_BE_SEEN} <= set(tables)
        for table in tables:
            for operation, rows in {"INSERT": "NEW", "UPDATE": "NEW", "DELETE": "OLD"}.items():
                cursor.execute(
                    f"CREATE TRIGGER watch_{operation} AFTER {operation} ON {table} "
                    f"REFERENCING {rows} TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION watch()"
                )

    def kept(*, fenced: bool) -> dict[tuple[str, str], int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT tab, op, sum(rows)::bigint FROM watched WHERE fenced = %s GROUP BY 1, 2", [fenced])
            return {(table, operation): rows for table, operation, rows in cursor.fetchall()}

    yield kept
    for process in fleet.processes:
        process.kill()
    with connection.cursor() as cursor:
        cursor.execute(drop)


def test_no_stage_writes_outside_a_fenced_transaction(
    fleet: Fleet, wait_until: Callable[..., Any], watched: Callable[..., dict[tuple[str, str], int]]
) -> None:
    upsert_job("edited", script="tests.tasks.add", args=[1], kind="manual")
    plant_work()
    every_second()
    leader = fleet.leader(PGAPPNAME=LEADERS_OWN, CRONOQ_LEASE="1")
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    deleted = upsert_job("deleted", script="tests.tasks.add", args=[1], kind="every", every=SECOND, overlap="allow")
    wait_until(lambda: Run.objects.filter(job=deleted).exists())
    deleted.delete()
    for n in range(5):
        Job.objects.filter(name="edited").update(kind="cron", cron=f"*/{n + 2} * * * * *", overlap="allow")
    wait_until(lambda: not Run.objects.filter(status="running").exists(), what="rescue, some seconds after the start")
    wait_until(lambda: Run.objects.filter(job_name="deleted", status="cancelled").exists())
    assert leader.stop() == 0
    seen = watched(fenced=True)
    assert {what for what in MUST_BE_SEEN if not seen.get(what)} == set()
    assert watched(fenced=False) == {}
    print(f"Fenced: {sum(seen.values())} rows. " + ", ".join(f"{op} {tab} {rows}" for (tab, op), rows in seen.items()))


def test_a_write_outside_a_fenced_transaction_is_seen(
    fleet: Fleet, watched: Callable[..., dict[tuple[str, str], int]]
) -> None:
    """The watch itself: it tells one from the other, whatever way the leader row is held."""
    Leader.objects.create(
        epoch=1, term=Job().pk, coordinator=Job().pk, host="h", backend_pid=1, ttl=SECOND,
        **dict.fromkeys(("backend_start", "acquired_at", "renewed_at"), clock()),
    )  # fmt: skip
    leader, another = (connect("default", name="cronoq leader") for _ in range(2))
    add = "INSERT INTO cronoq_pool (name) VALUES (gen_random_uuid())"
    read = "SELECT FROM cronoq_leader FOR SHARE"
    try:
        assert_seen(watched, leader, [read, add], fenced=True)
        assert_seen(watched, leader, [add], fenced=False)
        assert_seen(watched, leader, ["SELECT FROM cronoq_leader", add], fenced=False)
        assert_seen(watched, leader, [read, "UPDATE cronoq_leader SET renewed_at = now()", add], fenced=True)
        assert_seen(watched, leader, [read, "SAVEPOINT one", add], fenced=True)
        with transaction(another) as cursor:
            cursor.execute(read)  # two hold it: PostgreSQL then notes them under a number that stands for both
            assert_seen(watched, leader, [read, add], fenced=True)
            assert_seen(watched, leader, [add], fenced=False)
            assert_seen(watched, leader, ["SAVEPOINT one", add], fenced=False)
    finally:
        leader.close()
        another.close()
    before = watched(fenced=False)
    program = "from cronoq_django.models import Pool; Pool.objects.create(name='from Django')"
    command = fleet.command("shell", "-c", program, PGAPPNAME=LEADERS_OWN)
    assert command.wait() == 0, command.output
    assert watched(fenced=False)["cronoq_pool", "INSERT"] == before["cronoq_pool", "INSERT"] + 1


def assert_seen(
    watched: Callable[..., dict[tuple[str, str], int]], session: Session, statements: list[str], *, fenced: bool
) -> None:
    """The last of the statements, in one transaction, adds one pool, which is seen as that."""
    what = ("cronoq_pool", "INSERT")
    before = {kind: watched(fenced=kind).get(what, 0) for kind in (True, False)}
    with transaction(session) as cursor:
        for statement in statements:
            cursor.execute(statement)
    assert watched(fenced=fenced).get(what, 0) == before[fenced] + 1
    assert watched(fenced=not fenced).get(what, 0) == before[not fenced]


def plant_work() -> None:
    """Something to do for every stage."""
    job = Job.objects.get(name="edited")
    known = upsert_job("known again", script="tests.tasks.add", args=[1], kind="manual")
    upsert_job("gone", script="tests.tasks.add", args=[1], kind="manual")
    run = "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, {}) SELECT gen_random_uuid(), 'enqueue', "
    run += "'tests.tasks.add', {}, '{{}}', {} FROM generate_series(1, 20)"
    with connection.cursor() as cursor:
        insert_runs(cursor, [NewRun(script="tests.tasks.add", due_at=timezone.now() + n * SECOND) for n in range(9)])
        for statement in [
            "UPDATE cronoq_job SET source = 'code', declared_at = now() WHERE name = 'gone'",
            run.format("due_at", "'7'", "'queued', now()"),
            run.format(
                "worker_id, claim, lease_expires_at, started_at",
                "'[1]'",
                "'running', gen_random_uuid(), nextval('cronoq_claim'), now() - interval '1 hour', now()",
            ),
            run.format("finished_at", "'[1]'", "'succeeded', now() - interval '60 days'"),
            "INSERT INTO cronoq_attempt (run_id, number, claim, started_at, ended_at, outcome) "
            "SELECT id, 1, 1, finished_at, finished_at, 'succeeded' FROM cronoq_run WHERE status = 'succeeded'",
            "INSERT INTO cronoq_leader_term (term, epoch, coordinator, host, from_at, until_at, recovered) SELECT "
            "gen_random_uuid(), 0, gen_random_uuid(), 'h', now(), now() - age, '{}' "
            "FROM (VALUES (interval '60 days'), (NULL)) AS ages (age)",
            "INSERT INTO cronoq_stat (minute, pool, script, run_time, wait) "
            "VALUES (now() - interval '60 days', 'default', 'x', '1 s', '1 s')",
            "INSERT INTO cronoq_worker (id, name, host, process_id, version, pools, concurrency, scripts, status, "
            "last_heartbeat_at) SELECT gen_random_uuid(), 'w', 'h', 1, '1', '{}', 1, '{}', status, now() - interval "
            "'60 days' FROM (VALUES ('online'), ('stopped')) AS given (status)",
        ]:
            cursor.execute(statement)
        cursor.execute(
            "INSERT INTO cronoq_job_revision (job_id, number, changed_by, snapshot) "
            "SELECT %s, number, 'x', '{}' FROM generate_series(100, 300) AS number",
            [job.pk],
        )
    JobState.objects.create(
        job=known, partition=0, planned_revision=1, epoch=0, error="script: nobody knows it", updated_at=timezone.now()
    )
