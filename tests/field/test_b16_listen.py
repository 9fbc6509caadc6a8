"""After a restart of the database a worker stayed subscribed to a connection that was dead.

For weeks, jobs started only at the slow poll that was meant for emergencies. Elsewhere the dead wait returned at once,
and the loop used up a processor; or a thread never came back after the outage, although the application did.
"""

import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pytest
from django.db import connection

from cronoq_django.models import Run, Worker
from cronoq_django.store.session import connect
from cronoq_django.store.session import transaction as session_transaction
from tests import tasks
from tests.fault.conftest import Fleet, Process
from tests.fault.proxy import Effort, TcpProxy
from tests.fault.runs import finished
from tests.fault.server import OwnServer
from tests.fault.slots import figures
from tests.fault.test_server_trouble import add_jobs, assert_one_run_a_slot, count

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

IS_LONG = int(os.environ.get("CRONOQ_REPEATS", "1")) > 1
OUTAGE = 20.0 if IS_LONG else 4.0  # seconds
TASKS = 20 if IS_LONG else 1  # after the cuts, and once more after the outage
QUIET = 3.0  # seconds without work: by then the next poll is two seconds away
SESSIONS = 3  # the leader's, the supervisor's, and its child's


@pytest.fixture
def proxy(server: OwnServer) -> Iterator[TcpProxy]:
    with TcpProxy(server.app_url) as proxy:
        yield proxy


@pytest.mark.timeout(300)
def test_b16_what_listened_listens_again(
    fleet: Fleet, server: OwnServer, proxy: TcpProxy, wait_until: Callable[..., Any]
) -> None:
    """Sessions that end, twice, and a server that is away: neither is noticed in what starts afterwards."""
    add_jobs(server)
    server.query("UPDATE cronoq_job SET pool = 'slots'")
    environment = {"DATABASE_URL": proxy.url, "CRONOQ_POLL": "10"}
    processes = [fleet.leader(**environment), fleet.worker("--pool", "default=2", "--pool", "slots=2", **environment)]
    wait_until(lambda: count(server, "status = 'succeeded'"))
    for _ in range(2):
        server.cut("application_name ~ '^cronoq'")
        wait_until(lambda: sessions(server) == SESSIONS)
        time.sleep(5 if IS_LONG else 0)
    started_promptly(server, wait_until)

    spent = away(server, processes, proxy)
    ended_at = server.value("SELECT clock_timestamp()")
    wait_until(lambda: sessions(server) == SESSIONS)
    started_promptly(server, wait_until)
    print("Processor time during the outage:", ", ".join(f"{share:.1%}" for share in spent))
    assert max(spent) < 0.2
    wait_until(lambda: count(server, "scheduled_for > %s AND status = 'succeeded'", ended_at) >= 2)
    ended = "script = 'tests.tasks.count_pools' AND status = 'succeeded'"
    assert server.query(f"SELECT count(*), max(attempts) FROM cronoq_run WHERE {ended}") == [(2 * TASKS, 1)]
    assert [process.is_alive for process in processes] == [True, True]
    assert [process.stop() for process in processes] == [0, 0]
    assert_one_run_a_slot(server)


def away(server: OwnServer, processes: list[Process], proxy: TcpProxy) -> list[float]:
    """The server is, for a while; the shares of a processor that each command and its children spend meanwhile."""
    efforts = [Effort(process.pid, proxy) for process in processes]
    server.stop()
    time.sleep(OUTAGE)
    spent = [effort.cpu for effort in efforts]
    server.start()
    return spent


def sessions(server: OwnServer) -> int:
    return int(server.value("SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^cronoq .* in '"))


def started_promptly(server: OwnServer, wait_until: Callable[..., Any]) -> None:
    """Runs that are enqueued each after a quiet time, in which no poll is due, are begun without waiting for one."""
    runs = []
    for _ in range(TASKS):
        time.sleep(QUIET)
        runs.append(server.enqueue("tests.tasks.count_pools"))
        wait_until(lambda: server.value("SELECT finished_at FROM cronoq_run WHERE id = %s", runs[-1]))
    rows = server.query("SELECT extract(epoch FROM started_at - due_at) FROM cronoq_run WHERE id = ANY (%s)", runs)
    waited = [float(seconds) for (seconds,) in rows]
    print("Begun after", figures(waited))
    assert median(waited) < 1


@pytest.mark.parametrize("moment", ["it starts", "it comes back"])
def test_b16_nothing_is_lost_between_the_first_poll_and_the_listening(
    fleet: Fleet, wait_until: Callable[..., Any], moment: str
) -> None:
    """A worker that looked for work first, and listened then, missed what came in between until its next poll."""
    if moment == "it comes back":
        fleet.worker(CRONOQ_POLL="60")
        wait_until(finished(tasks.add.enqueue(1)))
    console = connect("default", name="console")
    with session_transaction(console) as cursor:
        cursor.execute("LOCK TABLE cronoq_worker IN EXCLUSIVE MODE")
        if moment == "it comes back":
            cut_workers()
        else:
            fleet.worker(CRONOQ_POLL="60")
        wait_until(is_waiting)
        result = tasks.add.enqueue(1)
    released_at = time.monotonic()
    console.close()
    wait_until(finished(result))
    assert time.monotonic() - released_at < 30
    assert Run.objects.get(pk=result.id).attempts == 1
    assert Worker.objects.count() == 1


OURS = "application_name LIKE 'cronoq worker%%' AND application_name LIKE '%% in ' || current_schema()"


def cut_workers() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {OURS}", [])


def is_waiting() -> bool:
    """Whether a worker, that listens already, waits for leave to say who it is."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {OURS} AND wait_event_type = 'Lock'", [])
        return bool(cursor.fetchone()[0])
