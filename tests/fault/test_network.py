"""The network goes black: no error, no end of a connection, just silence.

A leader waited for an answer until the kernel gave up, a quarter of an hour; it could not be stopped, and all the while
it took itself for the leader.
"""

import select
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models import Min
from django.utils import timezone

from cronoq_django.models import Coordinator, LeaderTerm, Run, Worker
from tests import tasks

from .conftest import Fleet, database_url
from .proxy import Effort, TcpProxy
from .slots import SECOND, assert_one_run_a_slot, epoch, every_second
from .test_workers import finished

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

TTL = 3  # seconds, in the settings of the processes


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    with TcpProxy(database_url()) as proxy:
        yield proxy


def through(proxy: TcpProxy) -> "psycopg.Connection[tuple[Any, ...]]":
    params = connection.get_connection_params()
    kept = {name: params[name] for name in ("user", "password", "dbname", "options") if params.get(name)}
    return psycopg.connect(**kept, host="127.0.0.1", port=proxy.port, autocommit=True, connect_timeout=2)


def answers(session: "psycopg.Connection[tuple[Any, ...]]", seconds: float) -> bool:
    """Whether anything arrives, be it the end."""
    return bool(select.select([session], [], [], seconds)[0])


def test_the_proxy_itself(proxy: TcpProxy) -> None:
    """Open sessions and new ones get no answer in the dark, and no end; afterwards new ones work."""
    begun = time.monotonic()
    swallowed = through(proxy)
    assert swallowed.execute("SELECT 1").fetchone() == (1,)
    proxy.go_black()
    swallowed.pgconn.send_query(b"SELECT 1")
    swallowed.pgconn.flush()
    with pytest.raises(psycopg.errors.ConnectionTimeout):
        through(proxy)
    assert not answers(swallowed, 0)
    proxy.heal()
    assert answers(swallowed, 5)
    with through(proxy) as session:
        assert session.execute("SELECT 1").fetchone() == (1,)
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    assert proxy.attempts_since(begun) == 3


def test_a_leader_in_the_dark_is_replaced_and_comes_back(
    fleet: Fleet, wait_until: Callable[..., Any], proxy: TcpProxy
) -> None:
    jobs = every_second(1)
    first = fleet.leader(DATABASE_URL=proxy.url)
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    second = fleet.leader()
    wait_until(lambda: Coordinator.objects.filter(status="standby").exists())

    proxy.go_black()
    black_at = timezone.now()
    effort = Effort(first.pid, proxy)
    wait_until(lambda: epoch() == 2, seconds=TTL + 1.5, what="the server lets go of the lock, and the standby leads")
    wait_until(
        lambda: "Stepping down, the database is unavailable" in first.output,
        seconds=2 * TTL - effort.seconds,
        what="the leader notices",
    )
    wait_until(lambda: fired(2, slot_after=black_at + 15 * SECOND), what="15 s of darkness pass")
    assert first.is_alive
    assert effort.attempts <= 2
    assert effort.cpu < 0.2

    proxy.heal()
    assert second.stop() == 0
    healed_at = timezone.now()
    wait_until(lambda: epoch() == 3 and fired(3, slot_after=healed_at), what="the first one leads again")
    assert first.stop() == 0
    assert not Run.objects.filter(epoch=1, created_at__gt=begin_of(2)).exists()
    assert not Run.objects.filter(epoch=2, created_at__gt=begin_of(3)).exists()
    assert list(LeaderTerm.objects.order_by("epoch").values_list("epoch", flat=True)) == [1, 2, 3]
    assert_one_run_a_slot(jobs)


def test_a_leader_alone_in_the_dark_makes_up_for_it(
    fleet: Fleet, wait_until: Callable[..., Any], proxy: TcpProxy
) -> None:
    """Nobody stands by: what was missed is fired when the light comes back."""
    jobs = every_second(1)
    leader = fleet.leader(DATABASE_URL=proxy.url)
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    proxy.go_black()
    wait_until(lambda: "Stepping down, the database is unavailable" in leader.output, seconds=2 * TTL)
    proxy.heal()
    healed_at = timezone.now()
    wait_until(lambda: epoch() == 2 and fired(2, slot_after=healed_at), what="it leads again")
    assert leader.stop() == 0
    assert_one_run_a_slot(jobs)


@pytest.mark.parametrize("moment", ["it has just begun", "reconnecting"])
@pytest.mark.parametrize("role", ["leading", "standing by"])
def test_a_leader_in_the_dark_can_be_stopped(
    fleet: Fleet, wait_until: Callable[..., Any], proxy: TcpProxy, moment: str, role: str
) -> None:
    if role == "standing by":
        fleet.leader()
        wait_until(lambda: epoch() == 1)
    leader = fleet.leader(DATABASE_URL=proxy.url)
    status = {"leading": "leading", "standing by": "standby"}[role]
    wait_until(lambda: Coordinator.objects.filter(process_id=leader.pid, status=status).exists())
    proxy.go_black()
    if moment == "reconnecting":
        black_at = time.monotonic()
        wait_until(lambda: proxy.attempts_since(black_at), seconds=2 * TTL + 2)
    leader.signal(signal.SIGTERM)
    assert leader.wait(30) == 0


@pytest.mark.parametrize("command", ["cronoq_worker", "cronoq_leader"])
def test_a_worker_in_the_dark_can_be_stopped(
    fleet: Fleet, wait_until: Callable[..., Any], proxy: TcpProxy, command: str
) -> None:
    """The one beside a leader, too, which must not hold the leader up."""
    process = fleet.command(command, "--pool", "default=2", DATABASE_URL=proxy.url, CRONOQ_GRACE="2")
    wait_until(finished(tasks.add.enqueue(1)))
    proxy.go_black()
    wait_until(lambda: Worker.objects.filter(last_heartbeat_at__lt=timezone.now() - 2 * SECOND).exists())
    process.signal(signal.SIGTERM)
    assert process.wait(45) == 0


def test_a_worker_in_the_dark_works_again(fleet: Fleet, wait_until: Callable[..., Any], proxy: TcpProxy) -> None:
    """What was open stays silent, as after a failover: the server that knew it is gone. New sessions are served."""
    fleet.worker(DATABASE_URL=proxy.url)
    wait_until(finished(tasks.add.enqueue(1)))
    proxy.go_black()
    wait_until(lambda: Worker.objects.filter(last_heartbeat_at__lt=timezone.now() - 2 * SECOND).exists())
    proxy.serve_again()
    wait_until(finished(tasks.add.enqueue(1)))


def fired(epoch: int, *, slot_after: datetime) -> bool:
    return Run.objects.filter(epoch=epoch, trigger="slot", scheduled_for__gt=slot_after).exists()


def begin_of(epoch: int) -> datetime:
    """When the first run of a term was written."""
    begin: datetime = Run.objects.filter(epoch=epoch).aggregate(begin=Min("created_at"))["begin"]
    return begin
