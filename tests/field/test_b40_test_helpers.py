"""Test helpers that told something else than production did.

A worker command run inside of a TestCase closed the test's own connection; code that passed with a memory backend broke
in production, because that backend did not turn arguments into JSON, or ran the task before the commit; clocks that a
test had frozen went on in the queue.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import django.test
import pytest
from django.db import DatabaseError, connection, transaction

from cronoq_django import cancel, enqueue_many
from cronoq_django.compat import TaskResultStatus, task_finished, task_started
from cronoq_django.models import Job, Pool, Run
from cronoq_django.models.choices import Reason, Status
from cronoq_django.store.jobs import upsert_job
from cronoq_django.testing import advance, assert_enqueued, enqueued, freeze, run_pending
from cronoq_django.testing.plugin import Cronoq
from tests import tasks

MINUTE = timedelta(minutes=1)


class InTestCase(django.test.TestCase):
    """The whole test is one transaction that is rolled back."""

    def test_what_is_due_runs_and_nothing_is_committed_or_closed(self) -> None:
        backend = connection.connection.info.backend_pid
        transaction_id = self._transaction_id()
        result = tasks.add.enqueue(1, b=2)
        (record,) = run_pending()
        result.refresh()
        assert (str(record.id), record.result, result.return_value) == (result.id, 3, 3)
        assert (connection.connection.info.backend_pid, self._transaction_id()) == (backend, transaction_id)
        assert connection.in_atomic_block

    def test_a_task_that_breaks_the_transaction_breaks_its_own_attempt_only(self) -> None:
        Pool.objects.create(name="taken")
        result = tasks.make_pool.using(max_attempts=1).enqueue("taken")
        other = tasks.make_pool.enqueue("free")
        assert [record.status for record in run_pending()] == [Status.FAILED, Status.SUCCEEDED]
        assert Run.objects.get(pk=result.id).error.startswith("django.db.utils.IntegrityError")
        assert Run.objects.get(pk=other.id).status == Status.SUCCEEDED
        assert set(Pool.objects.filter(name__in=["taken", "free"]).values_list("name", flat=True)) == {"taken", "free"}

    def _transaction_id(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT txid_current()")
            return int(cursor.fetchone()[0])


class InTransactionTestCase(django.test.TransactionTestCase):
    """The test commits."""

    def test_what_is_due_runs(self) -> None:
        result = tasks.add.enqueue(1, b=2)
        with transaction.atomic():
            tasks.echo.enqueue("in a transaction")
            assert len(run_pending()) == 2
        result.refresh()
        assert result.return_value == 3
        assert not connection.in_atomic_block


@pytest.mark.django_db
def test_it_runs_the_most_urgent_first_and_what_tasks_enqueue() -> None:
    tasks.echo.enqueue("later")
    tasks.echo.using(priority=5, queue_name="mail").enqueue("first")
    tasks.enqueue_another.using(priority=1).enqueue("child")
    assert [record.args[0] for record in run_pending()] == ["first", "child", "later", "child"]
    child, parent = Run.objects.order_by("-id")[0], Run.objects.get(script="tests.tasks.enqueue_another")
    assert child.parent_id == parent.pk


@pytest.mark.django_db
def test_delays_and_retries_wait_for_the_clock() -> None:
    with freeze("2025-03-09T06:59:30Z"):
        delayed = tasks.echo.using(run_after=MINUTE).enqueue(1)
        failing = tasks.retry_after.using(max_attempts=2).enqueue(90)
        assert [record.status for record in run_pending()] == [Status.SCHEDULED]
        assert Run.objects.get(pk=failing.id).due_at == datetime(2025, 3, 9, 7, 1, tzinfo=UTC)
        assert run_pending() == []
        advance(MINUTE)
        assert [str(record.id) for record in run_pending()] == [delayed.id]
        advance(MINUTE)
        assert [record.status for record in run_pending()] == [Status.FAILED]
        run = Run.objects.get(pk=delayed.id)
        assert run.created_at == datetime(2025, 3, 9, 6, 59, 30, tzinfo=UTC)
        assert run.finished_at == datetime(2025, 3, 9, 7, 0, 30, tzinfo=UTC)
    with pytest.raises(RuntimeError, match="freeze"):
        advance(MINUTE)


@pytest.mark.django_db
@pytest.mark.parametrize("day", ["2025-03-09", "2045-03-12"])
def test_jobs_fire_by_the_clock(day: str) -> None:
    """Before the real time, and after it: in the night without half past two in New York, its job fires at three."""
    with freeze(f"{day}T06:59:30Z"):
        runs = {"script": "tests.tasks.echo", "args": [1]}
        upsert_job("nightly", kind="cron", cron="30 2 * * *", timezone="America/New_York", **runs)
        upsert_job(
            "often", kind="every", every=timedelta(hours=1), anchor=datetime.fromisoformat(f"{day}T00:00:00Z"), **runs
        )
        assert run_pending() == []
        fired = []
        for _ in range(4):
            advance(timedelta(minutes=30))
            fired += [(record.job_name, record.scheduled_for) for record in run_pending()]
    assert len([name for name, _ in fired if name == "often"]) == 2
    (slot,) = [slot for name, slot in fired if name == "nightly"]
    assert slot is not None
    assert datetime.fromtimestamp(slot / 10**9, UTC).strftime("%H:%M") == "07:00"


@pytest.mark.django_db
def test_a_job_that_runs_once_and_prerequisites_and_deadlines() -> None:
    with freeze("2026-01-01T00:00:00Z"):
        upsert_job(
            "once", script="tests.tasks.add", args=[1], kind="once", run_at=datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
        )
        first, second = tasks.add.using(run_after=3 * MINUTE).bind(1), tasks.add.bind(2)
        late = tasks.add.using(expires=MINUTE, queue_name="closed", run_after=2 * MINUTE).bind(3)
        enqueue_many([first, second.wait_for(first), late])
        advance(2 * MINUTE)
        assert [record.job_name for record in run_pending()] == ["once"]
        assert Run.objects.get(pk=late.id).reason == Reason.EXPIRED
        advance(2 * MINUTE)
        assert [record.id for record in run_pending()] == [first.id, second.id]
        advance(timedelta(days=1))
        assert run_pending() == []
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_a_task_without_end_is_told_of() -> None:
    tasks.enqueue_itself.enqueue()
    with pytest.raises(RuntimeError, match="still work after 20 executions"):
        run_pending(limit=20)


@pytest.mark.django_db
def test_signals_are_sent() -> None:
    heard: list[Any] = []

    def hear(signal: Any, task_result: Any, **kwargs: Any) -> None:
        heard.append((task_result.id, task_result.status))

    for signal in (task_started, task_finished):
        signal.connect(hear)
    try:
        result = tasks.add.enqueue(1)
        run_pending()
    finally:
        for signal in (task_started, task_finished):
            signal.disconnect(hear)
    assert heard == [(result.id, TaskResultStatus.RUNNING), (result.id, TaskResultStatus.SUCCESSFUL)]


@pytest.mark.django_db
def test_what_is_enqueued_can_be_asked() -> None:
    tasks.add.enqueue(1, b=2)
    gone = tasks.add.enqueue(9)
    cancel(gone)
    tasks.echo.enqueue("x")
    assert [record.script for record in enqueued()] == ["tests.tasks.add", "tests.tasks.echo"]
    assert [record.args for record in enqueued(tasks.add)] == [[1]]
    assert assert_enqueued(tasks.add, 1, 2).kwargs == {"b": 2}
    assert_enqueued(tasks.add, b=2, a=1)
    there = r"add was not enqueued with \{'a': 9, 'b': 0\}; there is:\n  \{'a': 1, 'b': 2\}"
    with pytest.raises(AssertionError, match=there):
        assert_enqueued(tasks.add, 9)


@pytest.mark.django_db
def test_a_naive_clock_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"), freeze(datetime(2026, 1, 1)):  # noqa: DTZ001
        pass


def test_the_fixture_has_it_all(cronoq: Cronoq) -> None:
    cronoq.freeze("2026-01-01T00:00:00Z")
    result = tasks.add.using(run_after=MINUTE).enqueue(1)
    assert cronoq.assert_enqueued(tasks.add, 1).id == cronoq.enqueued()[0].id
    assert cronoq.run_pending() == []
    cronoq.advance(MINUTE)
    assert [str(record.id) for record in cronoq.run_pending()] == [result.id]


def test_the_clock_goes_on_after_a_test_that_froze_it(cronoq: Cronoq) -> None:
    assert datetime.now(UTC) - Run.objects.get(pk=tasks.add.enqueue(1).id).created_at < MINUTE


@pytest.mark.django_db
def test_a_broken_transaction_is_said_by_postgresql_as_ever() -> None:
    """The helper mends only what tasks break."""
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1/0")
    tasks.add.enqueue(1)
    assert len(run_pending()) == 1


@pytest.mark.django_db
def test_paused_pools_and_jobs_that_pause_are_as_in_production() -> None:
    Pool.objects.create(name="closed", paused=True)
    tasks.add.using(queue_name="closed").enqueue(1)
    tasks.add.enqueue(2)
    assert [record.args for record in run_pending()] == [[2]]
    with freeze("2026-01-01T00:00:30Z"):
        upsert_job("fragile", kind="cron", cron="* * * * *", pause_on_failure=True, script="tests.tasks.discard")
        for _ in range(3):
            run_pending()
            advance(MINUTE)
    assert Run.objects.filter(job_name="fragile").count() == 1
    assert not Job.objects.get(name="fragile").enabled


@pytest.mark.django_db
def test_what_ends_without_running_releases_what_waits_for_it() -> None:
    first = tasks.add.using(expires=timedelta(microseconds=1)).bind(1)
    second, third = tasks.add.bind(2), tasks.echo.bind("the alarm")
    enqueue_many([first, second.wait_for(first), third.wait_for(second, on="failure")])
    assert [record.id for record in run_pending()] == [third.id]


@pytest.mark.django_db
def test_a_task_is_ended_when_its_time_is_over() -> None:
    tasks.never_return.enqueue()
    (record,) = run_pending()
    assert (record.status, record.reason) == (Status.FAILED, Reason.TIMEOUT)


@pytest.mark.django_db
def test_a_task_may_delete_its_own_row() -> None:
    tasks.delete_runs.enqueue()
    tasks.add.using(queue_name="later").enqueue(1)
    assert run_pending() == []
    assert not Run.objects.exists()


@pytest.mark.django_db
def test_what_an_undone_task_left_for_the_commit_is_undone_too(django_capture_on_commit_callbacks: Any) -> None:
    Pool.objects.create(name="taken")
    with django_capture_on_commit_callbacks() as callbacks:
        tasks.enqueue_and_break.using(max_attempts=1).enqueue("taken")
        assert len(run_pending()) == 1
    assert len(callbacks) == 1  # of the enqueue here
    assert Run.objects.count() == 1


class WithoutDatabase(django.test.SimpleTestCase):
    """Nothing may touch it."""

    def test_the_clock_needs_no_database(self) -> None:
        with freeze("2026-01-01T00:00:00Z"):
            assert advance(MINUTE).minute == 1


@pytest.mark.django_db
def test_a_block_that_fails_says_so_itself_and_the_clock_goes_on() -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), freeze("2026-01-01T00:00:00Z"):
        upsert_job("once", script="tests.tasks.add", args=[1], kind="manual")
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1/0")
    upsert_job("now", script="tests.tasks.add", args=[1], kind="manual")
    assert datetime.now(UTC) - Job.objects.get(name="now").schedule_changed_at < MINUTE


@pytest.mark.django_db
def test_arguments_are_compared_as_they_come_back() -> None:
    tasks.echo.enqueue((1, 2))
    assert assert_enqueued(tasks.echo, (1, 2)).args == [[1, 2]]
