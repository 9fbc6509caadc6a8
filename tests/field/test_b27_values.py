"""A NUL in a result, and the run stayed "running" for an hour, although its work was done.

The write that failed was the one that should have ended it. A NaN did the same; keys of dicts came back as texts, and
one of 1 and "1" was lost; dates came back as texts; and what the backend of the tests took, that of production refused.
Here a value comes back equal, or is refused where it is given, by the name of its place. As a result it is refused
once: the run ends and says so, and its work is not done again.
"""

import json
import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from cronoq_django import enqueue_many, task
from cronoq_django.compat import TaskResultStatus, task_backends
from cronoq_django.models import Attempt, Pool, Run
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.models.fields import dump_json
from cronoq_django.store.runs import claim_runs, complete_runs
from cronoq_django.worker.executor import Execution
from tests import tasks
from tests.fault.conftest import Fleet

pytestmark = pytest.mark.django_db

BACKENDS = [
    "cronoq_django.backend.CronoqBackend",
    "cronoq_django.testing.ImmediateBackend",
    "cronoq_django.testing.DummyBackend",
]

Point = namedtuple("Point", "x y")


class Colour(StrEnum):
    RED = "red"


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


# What comes back, and as what
KEPT: dict[str, tuple[Any, Any]] = {
    "NUL": ("a\0b", "a\0b"),
    "NUL in a key": ({"a\0b": 1}, {"a\0b": 1}),
    "escaped NUL": ("\\u0000", "\\u0000"),
    "half a pair": ("\ud83d", "\ud83d"),
    "halves the wrong way round": ("\ude00\ud83d", "\ude00\ud83d"),
    "beyond the basic plane": ("😀", "😀"),
    "combining": ("e\u0301", "e\u0301"),  # not made one letter
    "tuple": ((1, 2), [1, 2]),
    "named tuple": (Point(1, (2,)), [1, [2]]),
    "more than bigint": (2**63, 2**63),
    "401 digits": (10**400, 10**400),
    "1e22": (1e22, 1e22),  # through jsonb it became an int
    "least float": (5e-324, 5e-324),
    "float": (1.0, 1.0),
    "minus nothing": (-0.0, -0.0),
    "truth": (True, True),
    "one": (1, 1),
    "nothing": (None, None),
    "empty": ({"": [{}, [], ""]}, {"": [{}, [], ""]}),
    "order": ({"b": 1, "a": 2}, {"b": 1, "a": 2}),
    "ordered": (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    "safe text": (mark_safe("<b>"), "<b>"),
    "member": (Colour.RED, "red"),
    "many": (list(range(10_000)), list(range(10_000))),
}

# What is refused, and what the refusal says beside the place
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "NaN": (float("nan"), ValueError, "nan"),
    "infinity": (float("inf"), ValueError, "inf"),
    "minus infinity": ([-math.inf], ValueError, "inf"),
    "1 and '1'": ({1: "a", "1": "b"}, TypeError, "the key 1 is int"),
    "None as key": ({None: 1}, TypeError, "the key None"),
    "truth as key": ({True: 1}, TypeError, "the key True is bool"),
    "tuple as key": ({(1, 2): 1}, TypeError, r"the key \(1, 2\)"),
    "decimal": (Decimal("1.10"), TypeError, "Decimal"),
    "fraction": (Fraction(1, 3), TypeError, "Fraction"),
    "complex": (1j, TypeError, "complex"),
    "aware": (datetime(2026, 1, 1, tzinfo=UTC), TypeError, "datetime"),
    "naive": (datetime(2026, 1, 1), TypeError, "datetime"),  # noqa: DTZ001
    "date": (date(2026, 1, 1), TypeError, "date"),
    "span": (timedelta(1), TypeError, "timedelta"),
    "UUID": (UUID(int=1), TypeError, "UUID"),
    "bytes": (b"x", TypeError, "bytes"),
    "bytearray": (bytearray(b"x"), TypeError, "bytearray"),
    "5,001 digits": (10**5000, ValueError, "too many digits"),
    "model instance": (Pool(name="x"), TypeError, "Pool"),
    "queryset": (Pool.objects.none(), TypeError, "QuerySet"),
    "lazy": (gettext_lazy("Monday"), TypeError, "proxy"),
    "set": ({1}, TypeError, "set"),
    "iterator": (iter([1]), TypeError, "iterator"),
    "function": (len, TypeError, "builtin"),
    "class": (int, TypeError, "type"),
    "circle": (circle(), ValueError, "too deeply"),
    "100,000 levels": (deep(100_000), ValueError, "too deeply"),
}

LARGE = 100_000_000  # characters

kept = pytest.mark.parametrize("name", KEPT)
not_kept = pytest.mark.parametrize("name", REFUSED)


@task
def give(name: str) -> Any:
    """The value of that name; a task can't be given it."""
    return "x" * LARGE if name == "large" else KEPT[name][0] if name in KEPT else REFUSED[name][0]


@pytest.fixture(params=BACKENDS, ids=lambda path: path.rpartition(".")[2])
def backend(request: pytest.FixtureRequest, settings: Any) -> Any:
    settings.TASKS = {"default": {"BACKEND": request.param}}
    return task_backends["default"]


def assert_same(value: Any, expected: Any) -> None:
    """Equal, and of the same kinds throughout: True is no 1 here, and 1.0 neither; a dict has its order."""
    assert repr(value) == repr(expected)


@contextmanager
def nothing_is_left() -> Iterator[None]:
    """No row, and the caller's transaction can still be used and committed."""
    with transaction.atomic():
        yield
        Pool.objects.create(name="still usable")
    assert Pool.objects.filter(name="still usable").exists()
    assert not Run.objects.exists()


# As an argument


@kept
def test_b27_an_argument_comes_back_as_it_was(backend: Any, name: str) -> None:
    given, expected = KEPT[name]
    for result, place in ((tasks.echo.enqueue(given), "args"), (tasks.echo.enqueue(value=given), "kwargs")):
        (value,) = result.args if place == "args" else result.kwargs.values()
        assert value == expected
        stored = backend.get_result(result.id)
        (value,) = stored.args if place == "args" else stored.kwargs.values()
        assert_same(value, expected)


@not_kept
def test_b27_an_argument_that_would_not_come_back_is_refused_by_its_place(backend: Any, name: str) -> None:
    given, error, said = REFUSED[name]
    anywhere = "(args|kwargs)" if said == "too deeply" else None
    with nothing_is_left():
        with pytest.raises(error, match=f"{anywhere or r'args.0.'}.*{said}"):
            tasks.echo.enqueue(given)
        with pytest.raises(error, match=f"{anywhere or r'kwargs..value..'}.*{said}"):
            tasks.echo.enqueue(value=given)
        with pytest.raises(error, match=f"{anywhere or r'args.0...a...1.'}.*{said}"):
            tasks.echo.enqueue({"a": [0, given]})


@not_kept
def test_b27_one_of_many_that_is_refused_refuses_all(backend: Any, name: str) -> None:
    given, error, said = REFUSED[name]
    place = "args" if said == "too deeply" else r"args.0."
    with nothing_is_left(), pytest.raises(error, match=f"{place}.*{said}"):
        enqueue_many([*(tasks.echo.bind(n) for n in range(5)), tasks.echo.bind(given), tasks.echo.bind(6)])


def test_b27_a_hundred_megabytes_are_refused_by_the_setting(backend: Any) -> None:
    large = "x" * LARGE
    with nothing_is_left():
        with pytest.raises(ValueError, match=r"tests\.tasks\.echo take 100,000,\d+ bytes.*MAX_PAYLOAD"):
            tasks.echo.enqueue(large)
        with pytest.raises(ValueError, match=r"tests\.tasks\.echo take 100,000,\d+ bytes.*MAX_PAYLOAD"):
            enqueue_many([tasks.echo.bind(1), tasks.echo.bind(large)])


def test_b27_the_setting_counts_bytes_of_json_to_the_last(backend: Any, settings: Any) -> None:
    settings.CRONOQ = {**settings.CRONOQ, "MAX_PAYLOAD": 100}
    fits = "x" * (100 - len('[""]{}'))
    tasks.echo.enqueue(fits)
    for over in (fits + "x", fits[:-1] + "ź", fits[:-1] + "\0"):  # six bytes each in JSON
        with pytest.raises(ValueError, match="MAX_PAYLOAD"):
            tasks.echo.enqueue(over)


def deepest_taken() -> int:
    """How many levels an argument may have here."""
    least, most = 1, 100_000
    while most - least > 1:
        levels = (least + most) // 2
        try:
            dump_json([deep(levels)], "args")
        except ValueError:
            most = levels
        else:
            least = levels
    return least


def further_down(function: Callable[[], Any], frames: int) -> Any:
    """Call it from as many calls further down, as a view of a site with some middleware is."""
    return function() if frames == 0 else further_down(function, frames - 1)


def test_b27_whatever_depth_is_taken_can_be_read_everywhere(backend: Any) -> None:
    """What `enqueue` accepts must not make it fail after the INSERT, nor who reads the result, nor the worker."""
    value = deep(deepest_taken())
    result = tasks.echo.enqueue(value)
    assert further_down(lambda: backend.get_result(result.id).args, 100) == [value]
    if not Run.objects.exists():
        return  # this one keeps no rows
    assert further_down(lambda: Run.objects.get(pk=result.id).args, 100) == [value]
    assert further_down(lambda: execute(result).status, 100) == Status.SUCCEEDED


# As a result


def execute(result: Any) -> Run:
    """Claim the run, execute it and write its outcome, as a worker does."""
    with transaction.atomic(), connection.cursor() as cursor:
        (claimed,) = claim_runs(cursor, worker=uuid4(), pool="default", limit=10, lease=timedelta(minutes=1))
        completion = Execution(claimed, "here").execute()
        assert completion is not None
        assert complete_runs(cursor, [completion]).accepted
    return Run.objects.get(pk=result.id)


@kept
def test_b27_a_result_comes_back_as_it_was(name: str) -> None:
    result = give.enqueue(name)
    run = execute(result)
    assert (run.status, run.reason, run.error) == (Status.SUCCEEDED, "", "")
    assert_same(run.result, KEPT[name][1])
    result.refresh()
    assert_same(result.return_value, KEPT[name][1])


@not_kept
def test_b27_a_result_that_would_not_come_back_ends_its_run_once(name: str) -> None:
    error = REFUSED[name][1]
    result = give.enqueue(name)
    run = execute(result)
    assert (run.status, run.reason, run.attempts, run.result) == (Status.FAILED, Reason.UNSTORABLE, 1, None)
    assert run.attempts < run.max_attempts  # it is not for want of attempts that there is no other
    assert f"{error.__name__}: result" in run.error
    assert Attempt.objects.get().outcome == Outcome.FAILED
    result.refresh()
    assert (result.status, [each.exception_class for each in result.errors]) == (TaskResultStatus.FAILED, [error])


def test_b27_a_result_of_a_hundred_megabytes_ends_its_run_once() -> None:
    run = execute(give.enqueue("large"))
    assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.UNSTORABLE, 1)
    assert "MAX_PAYLOAD" in run.error
    assert len(run.error) < 1000  # it is not said by showing it


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b27_a_worker_ends_every_run_and_goes_on(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    results = {name: give.enqueue(name) for name in (*KEPT, *REFUSED, "large")}
    after = tasks.add.enqueue(1, b=2)
    worker = fleet.worker(CRONOQ_IMPORTS=__name__)
    wait_until(lambda: not Run.objects.filter(finished_at=None).exists())
    for name, result in results.items():
        run = Run.objects.get(pk=result.id)
        if name in KEPT:
            assert (name, run.status) == (name, Status.SUCCEEDED)
            assert_same(run.result, KEPT[name][1])
        else:
            assert (name, run.status, run.reason, run.attempts) == (name, Status.FAILED, Reason.UNSTORABLE, 1)
            assert Attempt.objects.filter(run=run).count() == 1
    assert Run.objects.get(pk=after.id).result == 3
    assert worker.is_alive
    assert "Traceback" not in worker.output


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b27_an_error_that_cannot_be_stored_as_it_is_ends_its_run_too(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    """The message of an exception is as free as a result."""
    messages = ["a\0b", "\ud83d", "x" * 10_000_000, json.dumps("\0")]
    results = [tasks.fail.using(max_attempts=1).enqueue(message[:900_000]) for message in messages]
    fleet.worker()
    wait_until(lambda: not Run.objects.filter(finished_at=None).exists())
    for result in results:
        run = Run.objects.get(pk=result.id)
        assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.ERROR, 1)
        assert run.error.startswith("ValueError: ")
        assert "\0" not in run.error
