"""Tasks that were coroutines could not use the ORM, and those in threads used up the server's connections.

Each thread's connection stayed open for good: long-lived workers came to `max_connections`, and test databases could
not be dropped, "being accessed by other users". A worker that forked after it had asked the database something shared
one socket with all of its children.
"""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient
from django.urls import path

from cronoq_django import enqueue_many
from cronoq_django.models import Run, Worker
from cronoq_django.models.choices import Status
from tests import tasks
from tests.fault.conftest import Fleet, database_url
from tests.fault.runs import finished
from tests.fault.server import OwnServer
from tests.fault.test_server_trouble import take_all

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

CONCURRENCY = 10
OWN = 2  # sessions: the supervisor's, and its child's
MANY = 1000 if int(os.environ.get("CRONOQ_REPEATS", "1")) > 1 else 100  # of each kind


class Census:
    """Counts the connections of workers, their tasks' among them."""

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_schema()")
            self._schema = cursor.fetchone()[0]
        self.name = f"tasks in {self._schema}"
        self.most = 0

    @property
    def url(self) -> str:
        """The DATABASE_URL for workers: what their tasks open is told by its name."""
        return f"{database_url()}&application_name={self.name.replace(' ', '%20')}"

    def count(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name IN (%s, %s, %s)",
                [self.name, f"cronoq worker in {self._schema}", f"cronoq supervisor in {self._schema}"],
            )
            count = int(cursor.fetchone()[0])
        self.most = max(self.most, count)
        return count


@pytest.mark.parametrize("age", ["0", "null"])
def test_b32_connections_stay_few(fleet: Fleet, wait_until: Callable[..., Any], age: str) -> None:
    """Whether they are kept or not, and whatever threads the tasks use. No coroutine is refused the ORM."""
    census = Census()
    worker = fleet.worker("--pool", f"default={CONCURRENCY}", CRONOQ_CONN_MAX_AGE=age, DATABASE_URL=census.url)
    wait_until(lambda: census.count() == OWN)
    for kinds, most in {
        (tasks.count_pools, tasks.count_pools_async): CONCURRENCY + 4,
        (tasks.count_pools_elsewhere,): 2 * CONCURRENCY + 4,  # in threads of their own, beside what ours have kept
    }.items():
        results = enqueue_many([kind.bind() for _ in range(MANY) for kind in kinds])
        wait_until(lambda results=results: census.count() and finished(*results)())
        assert OWN < census.most <= most
        wait_until(lambda: census.count() <= OWN + (CONCURRENCY if age == "null" else 0), seconds=15)
    assert set(Run.objects.values_list("status", flat=True)) == {Status.SUCCEEDED}
    assert worker.stop() == 0
    assert census.count() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the sockets of a process")
def test_b32_children_share_no_socket_with_a_parent_that_had_asked_something(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    worker = fleet.command(
        "shell",
        "-c",
        "from django.core.management import call_command\n"
        "from cronoq_django.models import Run\n"
        "Run.objects.count()\n"
        "call_command('cronoq_worker', pool=[('default', 2)], processes=2)\n",
        CRONOQ_CONN_MAX_AGE="null",
    )
    wait_until(lambda: Worker.objects.filter(status="online").count() == 2)
    results = enqueue_many([kind.bind() for _ in range(50) for kind in (tasks.count_pools, tasks.count_pools_async)])
    wait_until(finished(*results))
    assert set(Run.objects.values_list("status", flat=True)) == {Status.SUCCEEDED}
    pids = [worker.pid, *Worker.objects.values_list("process_id", flat=True)]
    sockets = [{link for fd in Path(f"/proc/{pid}/fd").iterdir() if (link := socket_of(fd))} for pid in pids]
    assert all(sockets)
    assert not any(one & another for one, another in combinations(sockets, 2))
    assert not [sign for sign in ("SSL error", "consuming input failed") if sign in worker.output]
    assert worker.stop() == 0


def socket_of(descriptor: Path) -> str:
    """The socket that it is, or nothing; also if it has just been closed."""
    try:
        target = os.readlink(descriptor)
    except FileNotFoundError:
        return ""
    return target if target.startswith("socket:") else ""


async def order(request: HttpRequest, ending: str) -> HttpResponse:
    """Outside of a transaction, and inside of one that ends so."""
    free = await tasks.echo.aenqueue("free")

    def ordered() -> str:
        with transaction.atomic():
            bound = async_to_sync(tasks.echo.aenqueue)("bound")
            assert connection.in_atomic_block
            transaction.set_rollback(ending == "rollback")
        return str(bound.id)

    return HttpResponse(f"{free.id} {await sync_to_async(ordered)()}")


urlpatterns = [path("<str:ending>", order)]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_b32_an_async_view_enqueues_in_its_transaction_and_outside(
    fleet: Fleet, wait_until: Callable[..., Any], settings: Any, ending: str
) -> None:
    settings.ROOT_URLCONF = __name__
    fleet.worker()
    free, bound = async_to_sync(AsyncClient().get)(f"/{ending}").content.decode().split()
    wait_until(lambda: Run.objects.filter(pk=free, status=Status.SUCCEEDED).exists())
    assert Run.objects.filter(pk=bound).exists() == (ending == "commit")
    wait_until(lambda: not Run.objects.filter(finished_at__isnull=True).exists())


def test_b32_a_database_can_be_dropped_as_soon_as_its_worker_has_stopped(
    fleet: Fleet, wait_until: Callable[..., Any], server: OwnServer
) -> None:
    worker = fleet.worker(DATABASE_URL=server.app_url, CRONOQ_CONN_MAX_AGE="null")
    scripts = "tests.tasks.count_pools", "tests.tasks.count_pools_async", "tests.tasks.count_pools_elsewhere"
    for script in scripts:
        server.enqueue(script)
    wait_until(lambda: server.value("SELECT count(*) FROM cronoq_run WHERE status = 'succeeded'") == len(scripts))
    assert worker.stop() == 0
    server.query("DROP DATABASE app", database="postgres")  # waits for nobody, and ends nobody's sessions


def test_b32_a_worker_that_is_refused_connections_waits_for_them(
    fleet: Fleet, wait_until: Callable[..., Any], server: OwnServer
) -> None:
    """Its tasks' connections, too: what fails for want of one is tried again."""
    worker = fleet.worker(DATABASE_URL=server.app_url)
    wait_until(lambda: server.value("SELECT count(*) FROM cronoq_worker WHERE status = 'online'") == 1)
    with ExitStack() as taken:
        take_all(server, taken)
        server.cut("application_name <> 'taker'")
        wait_until(lambda: take_all(server, taken) or worker.output.count("unavailable") >= 6)
        server.enqueue("tests.tasks.count_pools", max_attempts=30)
    wait_until(lambda: server.value("SELECT count(*) FROM cronoq_run WHERE status = 'succeeded'") == 1)
    with ExitStack() as taken:
        take_all(server, taken)
        server.enqueue("tests.tasks.count_pools", max_attempts=30)
        wait_until(lambda: server.value("SELECT count(*) FROM cronoq_attempt WHERE error LIKE '%%connection%%'"))
    fleet.leader(DATABASE_URL=server.app_url)  # retries wait for one
    wait_until(lambda: server.value("SELECT count(*) FROM cronoq_run WHERE finished_at IS NULL") == 0)
    assert server.value("SELECT bool_and(status = 'succeeded') FROM cronoq_run")
    assert server.value("SELECT count(*) FROM cronoq_worker") == 1
    assert worker.stop() == 0
