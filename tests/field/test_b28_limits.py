"""A nightly fan-out failed at some seven thousand rows of nine columns, and being tried anew as a whole, grew each day.

A statement takes 65,535 parameters. A notification takes 8,000 bytes: one with the row in it made the INSERT fail for
an argument of that size, one with the ids for five hundred of them. An entry of an index takes 2,704 bytes: a key made
of a list of ids was refused, but only if it did not compress. Here the columns go over as lists, notifications name
nothing, and the index holds a digest of the key.
"""

import json
import os
import random
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from cronoq_django import Duplicate, enqueue_many, get_run
from cronoq_django.compat import InvalidTask
from cronoq_django.models import Dependency, Run
from cronoq_django.store.session import Session, connect, listen
from cronoq_django.tasks.bound import Bound
from tests import tasks
from tests.fault.conftest import ROOT, Fleet, database_url

pytestmark = pytest.mark.django_db(transaction=True)
in_one_transaction = pytest.mark.django_db  # the test's, where nobody else needs to see anything

MOST = 200_000
LARGEST = 1_000_000 - len('[""]{}')  # letters of the only argument
LONGEST = 64_000  # characters of a key


def letters(count: int) -> str:
    """Random ones, the same each time: they don't compress."""
    return "".join(random.Random(count).choices(string.ascii_letters + string.digits, k=count))


@pytest.fixture
def listener(transactional_db: None) -> Iterator[Session]:
    """A session that hears what the workers of the pool "default" hear."""
    session = connect("default", name="listener")
    listen(session, "pool:default")
    yield session
    session.close()


def heard(listener: Session) -> list[str]:
    """The texts of all notifications up to now: those before a mark that is sent after them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(cronoq_channel(current_schema(), 'pool:default'), 'mark')")
    texts = []
    for notification in listener.notifies(timeout=10):
        if notification.payload == "mark":
            return texts
        texts.append(notification.payload)
    raise AssertionError("the mark never came")


# Many rows


@pytest.mark.parametrize("count", [0, 1, 7_300, 65_536])
def test_b28_a_batch_goes_in_whole_and_in_order_whatever_its_size(listener: Session, count: int) -> None:
    with transaction.atomic():
        results = enqueue_many([tasks.add.bind(number) for number in range(count)])
    rows = list(Run.objects.order_by("id").values_list("id", "args"))
    assert [(UUID(result.id), result.args) for result in results] == rows
    assert [args for _, args in rows] == [[number] for number in range(count)]
    assert all(result.created for result in results)
    texts = heard(listener)
    assert len(texts) == (1 if count else 0)
    assert all(len(text) < 10 for text in texts)


def test_b28_a_batch_that_is_rolled_back_leaves_nothing(listener: Session) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert len(enqueue_many([tasks.add.bind(number) for number in range(7_300)])) == 7_300
        raise ZeroDivisionError
    assert not Run.objects.exists()
    assert heard(listener) == []


def test_b28_a_batch_whose_last_is_refused_by_the_database_leaves_nothing_of_the_statements_before() -> None:
    """It takes several statements; one that fails takes the others along, and not the caller's own work."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_run ADD CONSTRAINT planted CHECK (args::text <> '[\"poison\"]')")
    try:
        with transaction.atomic():
            kept = tasks.add.enqueue("before")
            with pytest.raises(Exception, match="planted"):
                enqueue_many([*(tasks.add.bind(number) for number in range(12_000)), tasks.add.bind("poison")])
            also_kept = tasks.add.enqueue("after")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE cronoq_run DROP CONSTRAINT planted")
    assert [str(pk) for pk in Run.objects.order_by("id").values_list("pk", flat=True)] == [kept.id, also_kept.id]


MANY = """
import json, resource, time
import django
django.setup()
from django.db import transaction
from cronoq_django import enqueue_many
from cronoq_django.models import Dependency, Run
from tests import tasks

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

tasks.add.enqueue(-1)  # what is imported and prepared once
before, begun = most(), time.monotonic()
with transaction.atomic():
    results = enqueue_many([tasks.add.bind(number) for number in range({count})])
seconds, growth = time.monotonic() - begun, most() - before
rows = Run.objects.filter(pk__gte=results[0].id).order_by("id").values_list("id", "args")
told = ((result.id, [number]) for number, result in enumerate(results))
in_order = all((str(id_), args) == one for (id_, args), one in zip(rows.iterator(), told, strict=True))
print(json.dumps({{"seconds": seconds, "megabytes": growth, "in_order": in_order, "rows": Run.objects.count()}}))
"""


@pytest.mark.fault
def test_b28_two_hundred_thousand_take_under_a_minute_and_little_memory(
    listener: Session, record_property: Callable[[str, Any], None]
) -> None:
    measured = json.loads(printed_by(MANY.format(count=MOST)))
    for name, value in measured.items():
        record_property(name, value)
    print(measured)
    assert (measured["rows"], measured["in_order"]) == (MOST + 1, True)
    assert measured["seconds"] < 60
    assert measured["megabytes"] < 300
    texts = heard(listener)
    assert len(texts) == 2  # the one before, and one for all
    assert all(len(text) < 10 for text in texts)


def printed_by(code: str) -> str:
    """What a process prints that is there for this alone: its memory is nobody else's."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.fault.settings"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def bound_by_server(transactional_db: None) -> Iterator[None]:
    """The driver sends parameters apart from the statement, where the limit is."""
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    options["server_side_binding"] = True
    yield
    connection.close()
    del options["server_side_binding"]


def plant(count: int) -> list[UUID]:
    """Runs that are there already; their ids."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status) SELECT gen_random_uuid(), 'enqueue', "
            "'tests.tasks.add', '[7]', '{}', 'queued' FROM generate_series(1, %s) RETURNING id",
            [count],
        )
        return [row[0] for row in cursor.fetchall()]


@pytest.mark.fault
def test_b28_more_than_a_statement_has_parameters_are_found_there_already(bound_by_server: None) -> None:
    """A batch is sent once more, because its answer was lost: the look at what is there has the same limit."""
    ids = plant(65_536)
    again = enqueue_many([Bound(tasks.add, [7], {}, id_) for id_ in ids])
    assert [(UUID(result.id), result.created) for result in again] == [(id_, False) for id_ in ids]
    assert Run.objects.count() == 65_536


@in_one_transaction
def test_b28_a_batch_that_is_there_already_is_looked_up_together(django_assert_max_num_queries: Any) -> None:
    """Not one by one: a batch sent once more took ten times as long as the first time."""
    ids = plant(500)
    with django_assert_max_num_queries(20):
        again = enqueue_many([Bound(tasks.add, [7], {}, id_) for id_ in ids])
    assert [(UUID(result.id), result.created) for result in again] == [(id_, False) for id_ in ids]


def test_b28_one_that_waits_for_more_than_a_statement_has_parameters_is_one_call(bound_by_server: None) -> None:
    waited = plant(65_536)
    last = tasks.add.using(after=waited).enqueue(1)
    assert Dependency.objects.filter(run_id=last.id).count() == 65_536
    assert Run.objects.get(pk=last.id).status == "blocked"


# Large arguments


@pytest.mark.parametrize("size", [7_950, 8_000, 9_000, LARGEST])
@pytest.mark.parametrize("way", ["one", "many"])
def test_b28_a_large_argument_goes_in_and_is_not_in_the_notification(listener: Session, size: int, way: str) -> None:
    text = letters(size)
    if way == "one":
        results = [tasks.echo.enqueue(text)]
    else:
        with transaction.atomic():
            results = enqueue_many([tasks.echo.bind(text), tasks.echo.using(queue_name="default").bind(text)])
    for result in results:
        assert Run.objects.get(pk=result.id).args == [text]
    (told,) = heard(listener)
    assert len(told) < 10


@in_one_transaction
def test_b28_an_argument_over_the_limit_is_refused_with_the_limit_and_the_transaction_goes_on() -> None:
    with transaction.atomic():
        kept = tasks.echo.enqueue("before")
        for call in (tasks.echo.enqueue, lambda text: enqueue_many([tasks.add.bind(1), tasks.echo.bind(text)])):
            with pytest.raises(ValueError, match=r"1,000,001 bytes .* CRONOQ\['MAX_PAYLOAD'\] = 1,000,000"):
                call(letters(LARGEST + 1))
        tasks.echo.enqueue("after")
    assert Run.objects.count() == 2
    assert Run.objects.earliest("id").pk == UUID(kept.id)


@pytest.mark.fault
def test_b28_a_worker_hands_large_arguments_to_the_task(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    fleet.worker()
    results = [tasks.echo.enqueue(letters(size)) for size in (9_000, LARGEST)]
    wait_until(lambda: not Run.objects.filter(finished_at=None).exists())
    assert [Run.objects.get(pk=result.id).result for result in results] == [letters(9_000), letters(LARGEST)]


def test_b28_ids_by_the_hundred_are_not_in_the_notification(listener: Session) -> None:
    """Five hundred in a transaction, one by one and of all priorities; a few wake-ups, a pool each."""
    with transaction.atomic():
        for number in range(500):
            tasks.add.using(priority=number % 5).enqueue(number)
            tasks.add.using(queue_name="mail").enqueue(number)
    texts = heard(listener)
    assert 1 <= len(texts) <= 5
    assert all(len(text) < 10 for text in texts)


# Long keys


@in_one_transaction
@pytest.mark.parametrize("compresses", [False, True], ids=["random", "equal"])
@pytest.mark.parametrize("length", [1, 2_600, 2_704, 3_000, 8_192, 10_000, LONGEST])
def test_b28_a_long_key_is_a_key(length: int, compresses: bool) -> None:
    key = "a" * length if compresses else letters(length)
    almost = [key[:-1] + "-", key[:-1]][: 1 if length == 1 else 2]  # equal but for the end
    with transaction.atomic():
        first = tasks.add.using(key=key).enqueue(1)
        again = tasks.add.using(key=key).enqueue(2)
        others = [tasks.add.using(key=other).enqueue(3) for other in almost]
    assert (first.created, again.created, again.id) == (True, False, first.id)
    assert all(other.created for other in others)
    assert Run.objects.get(pk=first.id).key == key
    assert get_run(key=key).id == UUID(first.id)
    with pytest.raises(Duplicate, match=first.id):
        tasks.add.using(key=key, on_duplicate="raise").enqueue(2)
    batch = enqueue_many([tasks.add.using(key=one).bind(4) for one in [key, *almost]])
    assert [result.id for result in batch] == [first.id, *(other.id for other in others)]


@in_one_transaction
@pytest.mark.parametrize("letter", ["ź", "日", "😀"], ids=["2 bytes", "3 bytes", "4 bytes"])
def test_b28_the_limit_of_a_key_is_in_characters(letter: str) -> None:
    first = tasks.add.using(key=letter * LONGEST).enqueue(1)
    assert tasks.add.using(key=letter * LONGEST).enqueue(1).id == first.id
    assert Run.objects.get().key == letter * LONGEST


@in_one_transaction
@pytest.mark.parametrize("key", ["a" * (LONGEST + 1), letters(LONGEST + 1)], ids=["equal", "random"])
def test_b28_a_key_that_is_too_long_is_refused_with_the_limit(key: str) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidTask, match="key must have at most 64,000 characters"):
            tasks.add.using(key=key).enqueue(1)
        kept = tasks.add.using(key=key[:LONGEST]).enqueue(1)
    assert Run.objects.get().pk == UUID(kept.id)
