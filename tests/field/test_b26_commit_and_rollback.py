"""A worker looked for the order that its task was about, and there was none: it was faster than the commit.

Others enqueued what was rolled back then, and customers had invoices for orders that never were. Those who waited for
the commit before they enqueued lost the task when that failed: the order was there, and nobody would ever see to it.
Here a run is a row in the caller's own transaction: it is there, and seen, when the order is.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connection, connections, transaction

from cronoq_django import enqueue_many, task
from cronoq_django.compat import task_backends, task_enqueued
from cronoq_django.models import Attempt, Run
from cronoq_django.models.choices import Status
from cronoq_django.routers import cluster
from cronoq_django.store.schema import create_schema
from cronoq_django.store.session import connect, listen, wait
from example_project.shop.models import Order
from tests import tasks
from tests.fault.conftest import ROOT, Fleet, database_url

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 10_000


@task(max_attempts=1)
def number_of(order: int) -> str:
    """Raises Order.DoesNotExist if it comes too early, or for nothing; and is not tried again."""
    return str(Order.objects.get(pk=order).number)


@task(max_attempts=1)
def count_orders(since: int) -> int:
    return int(Order.objects.filter(pk__gte=since).count())


def place(number: str) -> Order:
    return Order.objects.create(number=number, customer_email="ada@example.com", total=1)


def through_backend(order: Order) -> Any:
    return task_backends["default"].enqueue(number_of, [order.pk], {})


def through_coroutine(order: Order) -> Any:
    return async_to_sync(number_of.aenqueue)(order.pk)


WAYS: dict[str, Callable[[Order], Any]] = {
    "enqueue": lambda order: number_of.enqueue(order.pk),
    "aenqueue": through_coroutine,
    "backend": through_backend,
    "using": lambda order: number_of.using(key=order.number, tags=["orders"]).enqueue(order.pk),
    "enqueue_many": lambda order: enqueue_many([number_of.bind(order.pk)])[0],
}
ways = pytest.mark.parametrize("way", WAYS)


class Observer:
    """Somebody else with a connection to the database."""

    def __init__(self) -> None:
        self._session = connect("default", name="observer")
        listen(self._session, "pool:default")

    def runs(self) -> int:
        return int(self._session.execute("SELECT count(*) FROM cronoq_run").fetchall()[0][0])

    def is_notified(self, within: float = 5) -> bool:
        return wait(self._session, within)

    def close(self) -> None:
        self._session.close()


@pytest.fixture
def observer(transactional_db: None) -> Iterator[Observer]:
    observer = Observer()
    yield observer
    observer.close()


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The ids that `task_enqueued` was sent for."""
    ids: list[str] = []

    def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
        ids.append(task_result.id)

    task_enqueued.connect(receive)
    yield ids
    task_enqueued.disconnect(receive)


# What others see, and are told


@ways
def test_b26_a_run_is_there_when_what_it_is_about_is_there(observer: Observer, told: list[str], way: str) -> None:
    with transaction.atomic():
        order = place("1")
        result = WAYS[way](order)
        assert Run.objects.get(pk=result.id).args == [order.pk]  # the caller itself sees it
        assert (observer.runs(), told) == (0, [])
    assert told == [result.id]
    assert observer.runs() == 1
    assert observer.is_notified()


@ways
def test_b26_nothing_of_it_is_there_after_a_rollback(observer: Observer, told: list[str], way: str) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        result = WAYS[way](place("1"))
        assert result.id
        raise ZeroDivisionError
    with transaction.atomic():
        assert WAYS[way](place("2")).id
        transaction.set_rollback(True)
    assert (observer.runs(), Order.objects.count(), told) == (0, 0, [])
    assert not observer.is_notified(0.1)


@ways
def test_b26_an_undone_savepoint_takes_its_own_along_and_no_other(
    observer: Observer, told: list[str], way: str
) -> None:
    with transaction.atomic():
        first = WAYS[way](place("1"))
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            WAYS[way](place("2"))
            with transaction.atomic():  # one that was kept, within one that was not
                WAYS[way](place("3"))
            raise ZeroDivisionError
        with transaction.atomic():
            last = WAYS[way](place("4"))
        assert (observer.runs(), told) == (0, [])
    assert told == [first.id, last.id]
    assert {str(pk) for pk in Run.objects.values_list("pk", flat=True)} == {first.id, last.id}
    assert set(Order.objects.values_list("number", flat=True)) == {"1", "4"}
    assert observer.is_notified()


@ways
def test_b26_without_a_transaction_it_is_there_at_once(observer: Observer, told: list[str], way: str) -> None:
    result = WAYS[way](place("1"))
    assert (observer.runs(), told) == (1, [result.id])
    assert observer.is_notified()


def test_b26_of_one_that_was_there_already_nobody_is_told_again(told: list[str]) -> None:
    first = number_of.using(key="k").enqueue(1)
    with transaction.atomic():
        assert number_of.using(key="k").enqueue(1).id == first.id
    assert told == [first.id]


def test_b26_what_the_caller_does_with_the_list_changes_nothing_of_what_is_told(told: list[str]) -> None:
    """It collects the results of several calls in the list of the first: the signal came twice for the others."""
    with transaction.atomic():
        results = enqueue_many([number_of.bind(1)])
        results += enqueue_many([number_of.bind(2), number_of.bind(3)])
        ids = [result.id for result in results]
        results.clear()
    assert sorted(told) == ids


def test_b26_an_enqueue_that_fails_is_known_before_the_commit(told: list[str]) -> None:
    """Who enqueues after the commit learns of it when it is too late."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_run ADD CONSTRAINT planted CHECK (pool <> 'full')")
    try:
        with pytest.raises(IntegrityError, match="planted"), transaction.atomic():
            number_of.using(queue_name="full").enqueue(place("1").pk)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE cronoq_run DROP CONSTRAINT planted")
    with pytest.raises(TypeError, match="does not take"), transaction.atomic():
        number_of.enqueue(place("2").pk, "too many")
    assert (Order.objects.count(), Run.objects.count(), told) == (0, 0, [])


def test_b26_a_commit_that_fails_takes_both(observer: Observer, told: list[str]) -> None:
    """A deferred constraint refuses the order at the very end: there is no run without it, and no signal."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shop_order ADD CONSTRAINT planted UNIQUE (total) DEFERRABLE INITIALLY DEFERRED")
    try:
        with pytest.raises(IntegrityError, match="planted"), transaction.atomic():
            number_of.enqueue(place("1").pk)
            number_of.enqueue(place("2").pk)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE shop_order DROP CONSTRAINT planted")
    assert (observer.runs(), Order.objects.count(), told) == (0, 0, [])
    assert not observer.is_notified(0.1)


def test_b26_a_receiver_that_raises_costs_neither_run_nor_caller() -> None:
    def receive(**kwargs: Any) -> None:
        raise ZeroDivisionError

    task_enqueued.connect(receive)
    try:
        with transaction.atomic():
            result = number_of.enqueue(place("1").pk)
    finally:
        task_enqueued.disconnect(receive)
    assert Run.objects.get().pk.hex == result.id.replace("-", "")
    assert Order.objects.count() == 1


# With workers that snatch at everything


def at_work() -> dict[str, str]:
    """For worker processes: our tasks, and one connection a thread, or most of the time would go into connecting."""
    return {"CRONOQ_IMPORTS": __name__, "DATABASE_URL": f"{database_url()}&conn_max_age=60"}


@pytest.mark.fault
def test_b26_workers_meanwhile_get_nothing_before_its_time(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """Four callers at once, a third of them rolling back, a third undoing a savepoint; idle workers wait for each."""
    for _ in range(2):
        fleet.worker(**at_work())
    marker = number_of.enqueue(place("marker").pk)
    wait_until(lambda: Run.objects.filter(pk=marker.id, status=Status.SUCCEEDED).exists(), what="they are at work")

    def call(caller: int) -> list[tuple[str, str]]:
        kept = []
        try:
            for number in range(30):
                name = f"{caller}-{number}"
                way = list(WAYS.values())[number % len(WAYS)]
                with transaction.atomic():
                    order = place(name)
                    result = way(order)
                    assert result.id
                    # Others are at work, and done, while this is open: what is seen of it would be claimed by now.
                    done = number_of.using(priority=1).enqueue(order.pk)
                    if number % 3 == 1:
                        transaction.set_rollback(True)
                    elif number % 3 == 2:
                        with transaction.atomic():
                            number_of.enqueue(place(f"{name} undone").pk)
                            transaction.set_rollback(True)
                if number % 3 != 1:
                    kept += [(result.id, name), (done.id, name)]
        finally:
            connection.close()
        return kept

    with ThreadPoolExecutor(max_workers=4) as pool:
        kept = dict(pair for pairs in pool.map(call, range(4)) for pair in pairs)
    wait_until(lambda: not Run.objects.filter(finished_at=None).exists())
    ended = Run.objects.exclude(pk=marker.id)
    assert {str(run.pk): (run.status, run.result) for run in ended} == {
        id_: (Status.SUCCEEDED, name) for id_, name in kept.items()
    }
    assert not Attempt.objects.exists()  # which is written for what did not succeed at once


@pytest.mark.fault
def test_b26_nothing_begins_while_the_callers_transaction_is_open(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """The caller takes its time; meanwhile a whole row of other runs is begun and ended, one after the other."""
    fleet.worker(**at_work())
    others = []

    def work_of_others() -> None:
        try:
            for number in range(20):
                others.append(number_of.enqueue(place(f"other {number}").pk).id)
                wait_until(lambda: Run.objects.filter(pk=others[-1], finished_at__isnull=False).exists())
        finally:
            connection.close()

    with transaction.atomic():
        order = place("open")
        results = [way(order) for way in WAYS.values()]
        thread = threading.Thread(target=work_of_others)
        thread.start()
        thread.join()
        assert len(others) == 20
        mine = Run.objects.filter(pk__in=[result.id for result in results])
        assert set(mine.values_list("status", "claim", "worker")) == {(Status.QUEUED, None, None)}
    wait_until(lambda: not Run.objects.filter(finished_at=None).exists())
    assert list(mine.values_list("status", "result")) == [(Status.SUCCEEDED, "open")] * len(WAYS)


@pytest.mark.fault
def test_b26_ten_thousand_are_there_together_or_not_at_all(
    fleet: Fleet, wait_until: Callable[..., Any], told: list[str]
) -> None:
    """Each counts the orders when it begins: all of them, since all runs and all orders are one commit."""
    fleet.worker(**at_work())

    def is_done(result: Any) -> Callable[[], bool]:
        return lambda: Run.objects.filter(pk=result.id, status=Status.SUCCEEDED).exists()

    def enqueue_all() -> list[Any]:
        first = place("first")
        results = [*enqueue_many([count_orders.bind(first.pk) for _ in range(MANY - 100)])]
        results += [count_orders.enqueue(first.pk) for _ in range(100)]
        place("last")
        assert len({result.id for result in results}) == MANY
        return results

    before = count_orders.enqueue(0)
    wait_until(is_done(before), what="the worker is at work")
    with transaction.atomic():
        enqueue_all()
        transaction.set_rollback(True)
    after = count_orders.enqueue(0)
    wait_until(is_done(after), what="whatever was there before it has begun")
    assert told == [before.id, after.id]
    assert {str(pk) for pk in Run.objects.values_list("pk", flat=True)} == {before.id, after.id}

    told.clear()
    with transaction.atomic():
        results = enqueue_all()
        assert told == []
    assert told == [result.id for result in results]
    mine = Run.objects.exclude(pk__in=[before.id, after.id])
    assert mine.count() == MANY
    wait_until(lambda: mine.filter(status=Status.SUCCEEDED).count() >= MANY / 5)
    ended = mine.filter(finished_at__isnull=False)
    assert set(ended.values_list("status", "result")) == {(Status.SUCCEEDED, 2)}


# With a second database


@pytest.fixture
def second(transactional_db: None) -> Iterator[str]:
    """An alias of a cluster with a schema of its own, beside the default one."""
    alias = f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}_second"
    create_schema(alias)
    connections.databases[alias] = cluster(connection.settings_dict, alias)
    connections[alias].connect()  # at once: test cases forbid aliases that connect later
    yield alias
    connections[alias].close()
    del connections.databases[alias]
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA {alias} CASCADE")


def test_b26_runs_in_a_second_database_follow_its_transactions(second: str, settings: Any, told: list[str]) -> None:
    settings.CRONOQ = {**settings.CRONOQ, "DATABASE": second}
    settings.DATABASE_ROUTERS = ["cronoq_django.routers.ClusterRouter"]
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=second):
        tasks.add.enqueue(1)
        raise ZeroDivisionError
    assert (Run.objects.using(second).count(), told) == (0, [])
    with transaction.atomic(using=second):
        outer = tasks.add.enqueue(2)
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=second):
            enqueue_many([tasks.add.bind(3), tasks.add.bind(4)])
            raise ZeroDivisionError
        assert told == []
    assert told == [outer.id]
    assert [str(pk) for pk in Run.objects.using(second).values_list("pk", flat=True)] == [outer.id]
    assert not Run.objects.using("default").exists()


def test_b26_both_databases_open_each_has_its_own_commit(second: str, settings: Any, told: list[str]) -> None:
    """The inner one is committed, with the run; the outer one is the app's, and rolled back."""
    settings.CRONOQ = {**settings.CRONOQ, "DATABASE": second}
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        place("lost")
        with transaction.atomic(using=second):
            result = tasks.add.enqueue(1)
            assert told == []
        assert told == [result.id]
        raise ZeroDivisionError
    assert Order.objects.count() == 0
    assert Run.objects.using(second).count() == 1


ANOTHER = """
import copy
import django
django.setup()
from django.db import connections, transaction
from cronoq_django import enqueue_many
from cronoq_django.models import Pool, Run
from tests import tasks

connections.databases["other"] = copy.deepcopy(connections["default"].settings_dict)
def report(what):
    print(what, Run.objects.count(), flush=True)

with transaction.atomic(using="default"):
    tasks.add.enqueue(1)
tasks.add.enqueue(2)
with transaction.atomic(using="other"), transaction.atomic(using="default"):
    tasks.add.enqueue(3)
report("before")
with transaction.atomic(using="other"):
    Pool.objects.using("other").create(name="lost")
    for number in range(3):
        tasks.add.enqueue(number)
        enqueue_many([tasks.add.bind(number)])
    transaction.set_rollback(True, using="other")
report("after")
print("pools", Pool.objects.filter(name="lost").count())
"""


def test_b26_who_enqueues_within_a_transaction_of_another_database_is_warned_once(transactional_db: None) -> None:
    """It looks as if both were committed together, and they are not. Where they are, nothing is said."""
    done = subprocess.run(
        [sys.executable, "-u", "-c", ANOTHER],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.fault.settings"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line]
    assert done.returncode == 0, said
    before, warning, after, pools = said  # and nothing else, in this order
    assert (before, after, pools) == ("before 3", "after 9", "pools 0")
    assert "WARNING" in warning
    assert "within a transaction of the database 'other', but runs are in 'default'" in warning
