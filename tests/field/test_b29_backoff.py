"""At the sixteenth attempt the delay was a number that no calendar has, and the run was gone.

It was computed first and capped after. Elsewhere that was at the 43rd attempt, or the 1,024th, and it was not the run
that was gone but the scheduler, which crashed in a loop at the row. Here the delay is the smaller of power and cap at
any attempt, there is always a cap, and a row that somebody spoilt costs nobody but itself anything.
"""

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from cronoq_django.models import Attempt, Run, Worker
from cronoq_django.models.choices import Reason, Status
from cronoq_django.schedules import Backoff
from cronoq_django.store.runs import claim_runs, complete_runs
from cronoq_django.worker.executor import MOST_TOLD, Execution
from tests import tasks
from tests.fault.conftest import Fleet

HOUR = 3600
LARGEST = 10**9  # seconds: the largest cap, and the largest of all the numbers here
NEVER = datetime(9999, 12, 31, tzinfo=UTC)
ATTEMPTS = range(1, 2001)
TICK = timedelta(microseconds=1)
HIGHEST = 10**9  # what the table takes for attempts
MOST = 2**31 - 1  # what it takes for attempts allowed

factors = pytest.mark.parametrize("factor", [2, 5, 10])
firsts = pytest.mark.parametrize("first", [1, 5, 60])
caps = pytest.mark.parametrize("cap", [HOUR, LARGEST], ids=["an hour", "no cap"])


# The delays


@caps
@factors
@firsts
def test_b29_the_delay_is_the_smaller_of_power_and_cap(first: int, factor: int, cap: int) -> None:
    backoff = Backoff(first=first, factor=factor, cap=cap, jitter=False)
    for attempt in ATTEMPTS:
        exact = timedelta(seconds=min(cap, first * factor ** (attempt - 1)))  # whole numbers do not overflow
        assert abs(backoff.delay(attempt) - exact) <= TICK, attempt
        assert backoff.delay(attempt) <= timedelta(seconds=cap)


@caps
@factors
@firsts
def test_b29_with_jitter_it_lies_between_nothing_and_that(first: int, factor: int, cap: int) -> None:
    backoff = Backoff(first=first, factor=factor, cap=cap, jitter=True)
    delays = [backoff.delay(attempt) for attempt in ATTEMPTS]
    for attempt, delay in zip(ATTEMPTS, delays, strict=True):
        assert timedelta() <= delay <= timedelta(seconds=min(cap, first * factor ** (attempt - 1))) + TICK, attempt
    at_the_cap = delays[-1000:]
    assert min(at_the_cap) < timedelta(seconds=cap / 10)  # it is jitter over the whole of it
    assert max(at_the_cap) > timedelta(seconds=cap * 9 / 10)


@factors
@pytest.mark.parametrize("jitter", [False, True])
def test_b29_without_a_first_delay_there_is_none(factor: int, jitter: bool) -> None:
    for backoff in (Backoff(first=0, factor=factor, jitter=jitter), Backoff(factor=factor, cap=0, jitter=jitter)):
        assert {backoff.delay(attempt) for attempt in ATTEMPTS} == {timedelta()}


@pytest.mark.parametrize("attempt", [1, 16, 43, 47, 1_024, HIGHEST, MOST, 10**30])
@pytest.mark.parametrize("first", [5e-324, 1e-9, 1, LARGEST])
@pytest.mark.parametrize("factor", [1, 1.0000001, 2, LARGEST])
def test_b29_no_delay_leaves_the_calendar(first: float, factor: float, attempt: int) -> None:
    delay = Backoff(first=first, factor=factor, cap=LARGEST, jitter=False).delay(attempt)
    assert timedelta() <= delay <= timedelta(seconds=LARGEST)
    assert datetime.now(UTC) + delay < NEVER


@pytest.mark.parametrize("name", ["first", "factor", "cap"])
@pytest.mark.parametrize("value", [LARGEST + 1, 10**400, float("inf"), float("nan"), -1, True, None, "5"], ids=repr)
def test_b29_there_is_no_larger_number_to_be_given(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"backoff: {name}"):
        Backoff(**{name: value})


# Rows

BROKEN = {
    "number": "7",
    "text": '"soon"',
    "list": "[]",
    "null": "null",
    "truth": "true",
    "another name": '{"frist": 1}',
    "texts": '{"first": "1", "cap": "2"}',
    "negative": '{"first": -1}',
    "too large": '{"cap": 1e300}',
    "beyond floats": '{"first": 1e999}',
    "5,000 digits": '{"first": ' + "9" * 5000 + "}",
    "one of many": '{"first": 1, "factor": 2, "cap": 3, "jitter": true, "more": 4}',
    "NUL": '{"\\u0000": 1}',
    "no name": '{"": 1}',
    "deep": '{"first": ' + "[" * 5000 + "]" * 5000 + "}",
}


def spoil(result: Any, **columns: Any) -> Run:
    """Write into the row what no code of ours would."""
    assignments = ", ".join(f"{column} = %s" for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE cronoq_run SET {assignments} WHERE id = %s", [*columns.values(), result.id])
    return Run.objects.get(pk=result.id)


def execute() -> None:
    """Claim one run, execute it and write its outcome, as a worker does."""
    with transaction.atomic(), connection.cursor() as cursor:
        (claimed,) = claim_runs(cursor, worker=uuid4(), pool="default", limit=1, lease=timedelta(minutes=1))
        completion = Execution(claimed, "here").execute()
        assert completion is not None
        assert complete_runs(cursor, [completion]).accepted


def seconds_until_due(run: Run) -> float:
    """From the end of its newest attempt."""
    return (run.due_at - Attempt.objects.filter(run=run).latest("id").ended_at).total_seconds()


@pytest.mark.django_db
@pytest.mark.parametrize("broken", BROKEN)
def test_b29_a_broken_backoff_costs_the_run_no_retry(broken: str) -> None:
    result = tasks.fail.using(backoff=Backoff(first=0)).enqueue()
    spoil(result, backoff=BROKEN[broken])
    execute()
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.attempts) == (Status.SCHEDULED, 1), run.error
    assert 0 < seconds_until_due(run) <= 5  # as by default
    assert run.error == "ValueError: no"


@pytest.mark.django_db
@factors
@pytest.mark.parametrize("attempts", [0, 15, 42, 46, 1_023, 1_999, 100_000])
def test_b29_the_row_is_due_at_the_cap_at_the_latest(factor: int, attempts: int) -> None:
    result = tasks.fail.using(backoff=Backoff(first=5, factor=factor, cap=HOUR, jitter=False)).enqueue()
    spoil(result, attempts=attempts, max_attempts=MOST)
    execute()
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.attempts) == (Status.SCHEDULED, attempts + 1)
    assert seconds_until_due(run) == pytest.approx(min(HOUR, 5 * factor ** min(attempts, 100)))


@pytest.mark.django_db
def test_b29_the_longest_delay_can_be_stored_and_read() -> None:
    result = tasks.fail.using(backoff=Backoff(first=LARGEST, factor=LARGEST, cap=LARGEST, jitter=False)).enqueue()
    spoil(result, attempts=1_999, max_attempts=MOST)
    execute()
    run = Run.objects.get(pk=result.id)
    assert seconds_until_due(run) == pytest.approx(LARGEST)
    assert run.due_at < NEVER


@pytest.mark.django_db
@pytest.mark.parametrize("attempts", [HIGHEST + 1, 2_147_483_000, -1])
def test_b29_the_table_refuses_attempts_that_nobody_can_have_made(attempts: int) -> None:
    result = tasks.fail.enqueue()
    with pytest.raises(IntegrityError, match=r"cronoq_run_(numbers|attempts_check)"), transaction.atomic():
        spoil(result, attempts=attempts)
    assert Run.objects.get(pk=result.id).attempts == 0


@pytest.mark.django_db
def test_b29_many_attempts_take_no_memory() -> None:
    """Somebody raised the attempts of one row to a thousand million, and its worker asked for eight gigabytes."""
    result = tasks.attempt_of.enqueue()
    spoil(result, attempts=10_000_000, max_attempts=MOST)
    tracemalloc.start()
    try:
        execute()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.result) == (Status.SUCCEEDED, MOST_TOLD)  # the exact number is current_run()'s
    assert peak < 10_000_000  # bytes


@pytest.fixture
def bounded(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that gets two gigabytes and no more: this machine may have many."""
    (tmp_path / "bounded.py").write_text(
        "import resource\n\nfrom tests.fault.settings import *\n\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
    )
    return {"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "bounded"}


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b29_rows_that_were_spoilt_end_and_are_in_nobodys_way(
    fleet: Fleet, wait_until: Callable[..., Any], bounded: dict[str, str]
) -> None:
    with transaction.atomic():  # the worker sees them all together, and as they were spoilt
        high = [tasks.fail.enqueue(), tasks.add.enqueue(1, b=2)]
        for result in high:
            spoil(result, attempts=HIGHEST - 1, max_attempts=3)
        broken = [tasks.fail.enqueue() for _ in BROKEN]
        for result, text in zip(broken, BROKEN.values(), strict=True):
            spoil(result, backoff=text, max_attempts=1)
        good = [tasks.add.enqueue(n) for n in range(20)]
    worker = fleet.worker(**bounded)
    wait_until(lambda: not Run.objects.filter(finished_at=None).exists())
    failed, succeeded = (Run.objects.get(pk=result.id) for result in high)
    assert (failed.status, failed.reason, failed.attempts) == (Status.FAILED, Reason.ERROR, HIGHEST)
    assert (succeeded.status, succeeded.result, succeeded.attempts) == (Status.SUCCEEDED, 3, HIGHEST)
    ids = [result.id for result in broken]
    assert Run.objects.filter(pk__in=ids, status=Status.FAILED, reason=Reason.ERROR, attempts=1).count() == len(BROKEN)
    assert Run.objects.filter(pk__in=[result.id for result in good], status=Status.SUCCEEDED).count() == 20
    assert Worker.objects.count() == 1
    assert worker.is_alive
    assert "Traceback" not in worker.output


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b29_a_row_that_cannot_count_another_attempt_ends_and_is_in_nobodys_way(
    fleet: Fleet, wait_until: Callable[..., Any], bounded: dict[str, str]
) -> None:
    """The constraint that keeps attempts sane refused every outcome of the row, and with it those of all others."""
    with transaction.atomic():
        highest = [tasks.fail.enqueue(), tasks.add.enqueue(1, b=2)]
        for result in highest:
            spoil(result, attempts=HIGHEST, max_attempts=MOST)
        good = [tasks.add.enqueue(n) for n in range(20)]
    fleet.worker("--pool", "default=1", **bounded)
    ids = [result.id for result in good]
    wait_until(lambda: Run.objects.filter(pk__in=ids, status=Status.SUCCEEDED).count() == 20)
    ended = Run.objects.filter(pk__in=[result.id for result in highest])
    wait_until(lambda: not ended.filter(finished_at=None).exists())
    assert {run.status for run in ended} <= {Status.SUCCEEDED, Status.FAILED}
