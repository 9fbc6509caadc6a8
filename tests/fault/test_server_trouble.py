"""The server's bad days: restarts, outages, failovers, no connection left, transactions that it ends.

Other schedulers died of the first such error, or reconnected without a pause until the server had trouble because of
them, or went on and had lost the slots of that time. So: the same process is there afterwards, has spent little, fires
again soon, and each slot has its one run.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
import pytest

from .conftest import Fleet
from .proxy import Effort, TcpProxy
from .server import OwnServer

pytestmark = pytest.mark.fault

LENGTH = 10  # seconds of trouble
PROCESSES = 3  # with sessions of their own: leader, supervisor, worker

Trouble = Callable[[OwnServer], None]


def restart(server: OwnServer, mode: str) -> None:
    server.restart(mode)


def outage(server: OwnServer) -> None:
    server.stop("immediate")
    time.sleep(2 * LENGTH)
    server.start()


def read_only(server: OwnServer) -> None:
    """As after a failover to a standby that is not yet promoted."""
    server.query("ALTER DATABASE app SET default_transaction_read_only = on", database="postgres")
    server.cut()
    time.sleep(LENGTH)
    server.query("ALTER DATABASE app RESET default_transaction_read_only", database="postgres")
    server.cut()


def no_connection_left(server: OwnServer) -> None:
    """Somebody takes all connections, and those that we lose as well."""
    with ExitStack() as taken:
        take_all(server, taken)
        server.cut("application_name <> 'taker'")
        until = time.monotonic() + LENGTH
        while time.monotonic() < until:
            take_all(server, taken)
            time.sleep(0.1)


def take_all(server: OwnServer, taken: ExitStack) -> None:
    with suppress(psycopg.OperationalError):
        while True:
            taken.enter_context(closing(psycopg.connect(server.app_dsn, application_name="taker")))


def failing(server: OwnServer, table: str, *, statement: str) -> None:
    """The leader's statements on a table end as this one does; the others' don't, as far as they don't wait for it."""
    with planted(server, table, statement):
        time.sleep(LENGTH)


@contextmanager
def planted(server: OwnServer, table: str, statement: str) -> Iterator[None]:
    server.query(
        f"""
        CREATE FUNCTION public.planted() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF current_setting('application_name') LIKE 'cronoq leader%' THEN
                {statement};
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER planted BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION public.planted();
        """
    )
    try:
        yield
    finally:
        server.query("DROP FUNCTION public.planted CASCADE")


def raising(state: str) -> str:
    return f"RAISE EXCEPTION 'planted' USING ERRCODE = '{state}'"


FOR_EVER = "PERFORM pg_sleep(60)"  # until the leader's own statement_timeout

TROUBLES: dict[str, Trouble] = {
    "restart": partial(restart, mode="fast"),
    "crash": partial(restart, mode="immediate"),
    "outage": outage,
    "read-only": read_only,
    "no connection left": no_connection_left,
    **{
        f"{name} of {what}": partial(failing, table=table, statement=statement)
        for what, table in {"runs": "cronoq_run", "the term": "cronoq_leader"}.items()
        for name, statement in {
            "serialization failure": raising("40001"),
            "deadlock": raising("40P01"),
            "statement timeout": FOR_EVER,
        }.items()
    },
}


@pytest.fixture
def proxy(server: OwnServer) -> Iterator[TcpProxy]:
    with TcpProxy(server.app_url) as proxy:
        yield proxy


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_leader_lives_through(
    trouble: str, fleet: Fleet, server: OwnServer, proxy: TcpProxy, wait_until: Callable[..., Any]
) -> None:
    add_jobs(server)
    leader = fleet.leader("--pool", "default=2", DATABASE_URL=proxy.url)
    wait_until(lambda: count(server, "status = 'succeeded'") >= 2)

    effort = Effort(leader.pid, proxy)
    TROUBLES[trouble](server)
    ended_at = server.value("SELECT clock_timestamp()")
    wait_until(lambda: count(server, "scheduled_for > %s", ended_at) >= 2, what="it fires again")
    wait_until(lambda: count(server, "scheduled_for > %s AND status = 'succeeded'", ended_at) >= 2, what="and works")
    wait_until(lambda: effort.seconds > LENGTH, what="enough to measure", seconds=LENGTH)
    assert effort.cpu < 0.2
    assert effort.attempts <= 2 * PROCESSES

    assert leader.is_alive
    assert leader.stop() == 0
    assert_one_run_a_slot(server)
    assert count(server, "status = 'failed'") == 0


def test_two_leaders_live_through_a_crash_and_one_leads(
    fleet: Fleet, server: OwnServer, wait_until: Callable[..., Any]
) -> None:
    add_jobs(server)
    leaders = [fleet.leader(DATABASE_URL=server.app_url) for _ in range(2)]
    wait_until(lambda: server.value("SELECT count(*) FROM cronoq_coordinator") == 2)
    wait_until(lambda: count(server, "true") >= 2)
    server.restart("immediate")
    began = server.value("SELECT clock_timestamp()")
    wait_until(lambda: count(server, "scheduled_for > %s", began) >= 6)
    assert server.value("SELECT epoch FROM cronoq_leader") == 2
    assert [leader.stop() for leader in leaders] == [0, 0]
    assert_one_run_a_slot(server)


def test_a_standby_needs_no_further_connection_to_take_over(
    fleet: Fleet, server: OwnServer, proxy: TcpProxy, wait_until: Callable[..., Any]
) -> None:
    """There was none left when the leader died. The standby had one, got the lock, and could not lead."""
    add_jobs(server)
    first = fleet.leader(DATABASE_URL=server.app_url)
    wait_until(lambda: count(server, "true") >= 2)
    second = fleet.leader(DATABASE_URL=proxy.url)
    wait_until(lambda: server.query("SELECT id FROM cronoq_coordinator WHERE status = 'standby'"))
    with ExitStack() as taken:
        take_all(server, taken)
        effort = Effort(second.pid, proxy)
        first.kill()
        wait_until(lambda: take_all(server, taken) or server.value("SELECT epoch FROM cronoq_leader") == 2)
        wait_until(lambda: count(server, "epoch = 2") >= 2)
        assert effort.attempts <= 2
    assert second.stop() == 0
    assert_one_run_a_slot(server)


def test_two_that_fail_to_take_over_leave_each_other_in_peace(
    fleet: Fleet, server: OwnServer, proxy: TcpProxy, wait_until: Callable[..., Any]
) -> None:
    """Who gives the lock back tells the others. They tried at once, failed as well, and told it back."""
    add_jobs(server)
    leaders = [fleet.leader(DATABASE_URL=proxy.url) for _ in range(2)]
    wait_until(lambda: server.value("SELECT count(*) FROM cronoq_coordinator") == 2)
    wait_until(lambda: count(server, "true") >= 2)
    efforts = [Effort(leader.pid, proxy) for leader in leaders]
    failing(server, "cronoq_leader", statement=raising("40001"))
    ended_at = server.value("SELECT clock_timestamp()")
    assert efforts[0].attempts <= 2 * 2
    assert all(effort.cpu < 0.2 for effort in efforts)
    wait_until(lambda: count(server, "scheduled_for > %s", ended_at) >= 2)
    assert [leader.stop() for leader in leaders] == [0, 0]
    assert_one_run_a_slot(server)


def test_a_limit_for_idle_sessions_ends_no_term(
    fleet: Fleet, server: OwnServer, wait_until: Callable[..., Any]
) -> None:
    """An administrator gives the role a limit that is shorter than some of our pauses."""
    server.query("ALTER ROLE app SET idle_session_timeout = '2s'")
    add_jobs(server)
    leader = fleet.leader("--pool", "default=2", DATABASE_URL=server.app_url, CRONOQ_LEASE="30", CRONOQ_LEADER_TTL="10")
    wait_until(lambda: count(server, "status = 'succeeded'") >= 2)
    begun = server.value("SELECT clock_timestamp()")
    wait_until(
        lambda: count(server, "scheduled_for > %s + interval '10 s' AND finished_at IS NOT NULL", begun), seconds=15
    )
    assert server.value("SELECT epoch FROM cronoq_leader") == 1
    assert "unavailable" not in leader.output
    assert leader.stop() == 0
    assert_one_run_a_slot(server)


def test_connections_of_limited_age_end_no_term(
    fleet: Fleet, server: OwnServer, wait_until: Callable[..., Any]
) -> None:
    """Django closes its connections when they are old, or look broken; the leader's and the workers' are their own."""
    add_jobs(server, script="tests.tasks.surroundings", args="[]")
    url = f"{server.app_url}&conn_max_age=2&conn_health_checks=true"
    leader = fleet.leader("--pool", "default=2", DATABASE_URL=url)
    wait_until(lambda: count(server, "status = 'succeeded'") >= 2)
    begun = server.value("SELECT clock_timestamp()")
    wait_until(
        lambda: count(server, "scheduled_for > %s + interval '12 s' AND finished_at IS NOT NULL", begun), seconds=15
    )
    assert server.value("SELECT epoch FROM cronoq_leader") == 1
    assert server.value("SELECT count(*) FROM cronoq_worker") == 1
    assert leader.stop() == 0
    assert count(server, "status = 'failed'") == 0
    assert_one_run_a_slot(server)


def add_jobs(server: OwnServer, *, script: str = "tests.tasks.add", args: str = "[1]") -> None:
    """Two jobs, each due every second, and for all of it."""
    server.query(
        "INSERT INTO cronoq_job (name, script, args, kwargs, kind, every, overlap, misfire, misfire_limit) "
        "SELECT 'every-second-' || n, %s, %s, '{}', 'every', '1 second', 'allow', 'all', 1000 "
        "FROM generate_series(1, 2) AS n",
        script,
        args,
    )


def count(server: OwnServer, which: str, *params: Any) -> int:
    """How many runs of our jobs' slots are so. (The example's code declares jobs, too.)"""
    ours = "trigger = 'slot' AND job_name ~ '^every-second-'"
    return int(server.value(f"SELECT count(*) FROM cronoq_run WHERE {ours} AND ({which})", *params))


def assert_one_run_a_slot(server: OwnServer) -> None:
    """No slot twice, and none left out between a job's first and its last."""
    jobs = server.query(
        "SELECT count(*), count(DISTINCT scheduled_for), "
        "1 + extract(epoch FROM max(scheduled_for) - min(scheduled_for))::int "
        "FROM cronoq_run WHERE trigger = 'slot' AND job_name ~ '^every-second-' GROUP BY job_name"
    )
    assert len(jobs) == 2
    assert all(runs == slots == seconds for runs, slots, seconds in jobs), jobs
