"""Behind PgBouncer in transaction mode a lock stays on a connection that others get, and settings with it.

Leaders took the lock there and led without it, or nobody could, since the lock was stranded; and the timeouts that they
set ended other programs' sessions. So a leader says no, and a worker does without what it can't have.
"""

import select
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import Any

import pytest

from cronoq_django.store.session import connect

from .conftest import Fleet
from .pgbouncer import Crowd, PgBouncer
from .server import OwnServer

pytestmark = pytest.mark.fault

Pooler = Callable[..., PgBouncer]
POLL = 1.0  # seconds: the setting's default

SETTINGS = (
    "SELECT current_setting('idle_session_timeout'), current_setting('idle_in_transaction_session_timeout'), "
    "current_setting('statement_timeout'), current_setting('lock_timeout'), "
    "(SELECT count(*) FROM pg_listening_channels())"
)
UNTOUCHED = ("0", "0", "0", "0", 0)


def add_job(server: OwnServer) -> None:
    server.query(
        "INSERT INTO cronoq_job (name, script, args, kwargs, kind, every, overlap) "
        "VALUES ('every-second', 'tests.tasks.add', '[1]', '{}', 'every', '1 second', 'allow')"
    )


def locks(server: OwnServer) -> int:
    return int(server.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database IS NOT NULL"))


def runs(server: OwnServer, which: str) -> int:
    return int(server.value(f"SELECT count(*) FROM cronoq_run WHERE {which}"))


def leader_row(server: OwnServer) -> list[tuple[Any, ...]]:
    return server.query("SELECT * FROM cronoq_leader")


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_leader_is_refused(fleet: Fleet, server: OwnServer, pgbouncer: Pooler, *, busy: bool) -> None:
    add_job(server)
    pooler = pgbouncer(size=6)
    before = leader_row(server)
    with Crowd(pooler) if busy else nullcontext():
        leader = fleet.leader(DATABASE_URL=pooler.url)
        assert leader.wait() == 1
    assert "PgBouncer" in leader.output
    assert "LEADER_DSN" in leader.output
    assert "Traceback" not in leader.output
    assert locks(server) == 0
    assert leader_row(server) == before
    assert runs(server, "true") == 0
    assert set(pooler.on_each_backend(SETTINGS)) == {UNTOUCHED}


def test_a_refused_leader_is_in_no_others_way(
    fleet: Fleet, server: OwnServer, pgbouncer: Pooler, wait_until: Callable[..., Any]
) -> None:
    add_job(server)
    leader = fleet.leader(DATABASE_URL=server.app_url)
    wait_until(lambda: runs(server, "trigger = 'slot'") >= 1)
    before = leader_row(server)
    pooler = pgbouncer()
    refused = [fleet.leader(DATABASE_URL=pooler.url) for _ in range(3)]
    assert [process.wait() for process in refused] == [1, 1, 1]
    assert locks(server) == 1
    assert [(row[1], row[2]) for row in leader_row(server)] == [(row[1], row[2]) for row in before]
    assert leader.stop() == 0
    assert locks(server) == 0


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_with_an_address_of_its_own_it_leads(
    fleet: Fleet, server: OwnServer, pgbouncer: Pooler, wait_until: Callable[..., Any], *, busy: bool
) -> None:
    """The leader goes straight to PostgreSQL; the workers beside it, and all else, go through the pooler."""
    add_job(server)
    pooler = pgbouncer(size=6)
    with Crowd(pooler) if busy else nullcontext():
        leader = fleet.leader("--pool", "default=2", DATABASE_URL=pooler.url, CRONOQ_LEADER_DSN=server.app_dsn)
        wait_until(lambda: runs(server, "trigger = 'slot' AND status = 'succeeded'") >= 3)
        assert locks(server) == 1
        assert leader.stop() == 0
    assert locks(server) == 0
    assert server.value("SELECT epoch FROM cronoq_leader") == 1
    assert set(pooler.on_each_backend(SETTINGS)) == {UNTOUCHED}


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_worker_works_by_polling(
    fleet: Fleet, server: OwnServer, pgbouncer: Pooler, wait_until: Callable[..., Any], *, busy: bool
) -> None:
    pooler = pgbouncer(size=6)
    with Crowd(pooler) if busy else nullcontext():
        worker = fleet.worker(DATABASE_URL=pooler.url)
        wait_until(lambda: "poll" in worker.output)
        enqueue = "from tests import tasks; [tasks.add.enqueue(n) for n in range(20)]"
        shell = fleet.command("shell", "-c", enqueue, DATABASE_URL=pooler.url)
        assert shell.wait() == 0, shell.output
        wait_until(lambda: runs(server, "status = 'succeeded'") == 20)
        took = server.value("SELECT extract(epoch FROM max(finished_at) - max(created_at))::float FROM cronoq_run")
        assert took < 2 * POLL
        assert worker.stop() == 0
    assert runs(server, "attempts > 1") == 0
    assert server.query("SELECT status FROM cronoq_worker") == [("stopped",)]
    assert set(pooler.on_each_backend(SETTINGS)) == {UNTOUCHED}


def test_it_is_recognized_every_time(server: OwnServer, pgbouncer: Pooler) -> None:
    """Once in a hundred times a session got one connection again and again by chance, and left its timeouts there."""
    pooler = pgbouncer(size=8)
    dsn = f"host=127.0.0.1 port={pooler.port} user=app dbname=app"
    with Crowd(pooler):
        for _ in range(300):
            with connect("default", name="probe", dsn=dsn, settings={"lock_timeout": "1min"}) as session:
                assert session.is_pooled
    with connect("default", name="probe", dsn=server.app_dsn, settings={"lock_timeout": "1min"}) as session:
        assert not session.is_pooled
    assert set(pooler.on_each_backend(SETTINGS)) == {UNTOUCHED}


@pytest.mark.parametrize("command", ["cronoq_leader", "cronoq_worker"])
def test_a_small_pool_is_left_to_others(
    fleet: Fleet, server: OwnServer, pgbouncer: Pooler, wait_until: Callable[..., Any], command: str
) -> None:
    """Who finds out whether there is a pooler needs two connections, and may get one: that it must give back soon."""
    pooler = pgbouncer(size=1)
    process = fleet.command(command, DATABASE_URL=pooler.url)
    arrived = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'cronoq%'"
    wait_until(lambda: server.query(arrived))
    until = time.monotonic() + 10
    while process.is_alive and time.monotonic() < until:
        with closing(pooler.connect()) as client:
            client.pgconn.send_query(b"SELECT 1")
            assert select.select([client], [], [], 2)[0], "no connection is left for others"


def test_in_session_mode_a_leader_leads(
    fleet: Fleet, server: OwnServer, pgbouncer: Pooler, wait_until: Callable[..., Any]
) -> None:
    add_job(server)
    pooler = pgbouncer(mode="session", size=10)
    leader = fleet.leader("--pool", "default=2", DATABASE_URL=pooler.url)
    wait_until(lambda: runs(server, "trigger = 'slot' AND status = 'succeeded'") >= 3)
    assert locks(server) == 1
    assert leader.stop() == 0
    assert locks(server) == 0
    assert set(pooler.on_each_backend(SETTINGS)) == {UNTOUCHED}


def test_the_next_leader_leads_when_the_pooler_keeps_its_connections(
    fleet: Fleet, server: OwnServer, pgbouncer: Pooler, wait_until: Callable[..., Any]
) -> None:
    """In session mode the server's connection outlives a killed leader; its lock must not."""
    add_job(server)
    pooler = pgbouncer(mode="session", size=10)
    first = fleet.leader(DATABASE_URL=pooler.url)
    wait_until(lambda: runs(server, "trigger = 'slot'") >= 1)
    first.kill()
    killed_at = time.monotonic()
    fleet.leader(DATABASE_URL=pooler.url)
    wait_until(lambda: server.value("SELECT epoch FROM cronoq_leader") == 2)
    assert time.monotonic() - killed_at < 30
