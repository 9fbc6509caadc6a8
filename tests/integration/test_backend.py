"""The backend of Django's tasks framework: enqueue in the caller's transaction, results, what is refused."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy

from cronoq_django import Backoff, task
from cronoq_django.compat import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_backends, task_enqueued
from cronoq_django.models import Attempt, Run
from cronoq_django.models.choices import Status
from tests import tasks

pytestmark = pytest.mark.django_db


def test_enqueue_makes_a_queued_run() -> None:
    result = tasks.add.enqueue(1, b=2)
    run = Run.objects.get(pk=result.id)
    assert (run.script, run.args, run.kwargs, run.status) == ("tests.tasks.add", [1], {"b": 2}, Status.QUEUED)
    assert (run.pool, run.priority, run.max_attempts, run.trigger) == ("default", 0, 3, "enqueue")
    assert result.status == TaskResultStatus.READY
    assert result.enqueued_at == run.created_at
    assert result.attempts == 0


def test_enqueue_is_one_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        tasks.add.enqueue(1)


def test_using_changes_what_the_row_says() -> None:
    later = timezone.now() + timedelta(hours=1)
    changed = tasks.add.using(
        priority=7, queue_name="mail", run_after=later, max_attempts=9, timeout=30, backoff=Backoff(first=1, factor=3)
    )
    run = Run.objects.get(pk=changed.enqueue(1).id)
    assert (run.priority, run.pool, run.due_at, run.status) == (7, "mail", later, Status.SCHEDULED)
    assert (run.max_attempts, run.timeout) == (9, timedelta(seconds=30))
    assert run.backoff == {"first": 1, "factor": 3, "cap": 3600, "jitter": True}
    assert tasks.add.priority == 0


def test_run_after_may_be_a_delay() -> None:
    run = Run.objects.get(pk=tasks.add.using(run_after=timedelta(minutes=5)).enqueue(1).id)
    assert timedelta(minutes=4) < run.due_at - timezone.now() <= timedelta(minutes=5)


def test_a_rolled_back_savepoint_takes_its_enqueue_along() -> None:
    with transaction.atomic():
        kept = tasks.add.enqueue(1)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            tasks.add.enqueue(2)
            raise ZeroDivisionError
    assert [str(pk) for pk in Run.objects.values_list("pk", flat=True)] == [kept.id]


@pytest.mark.parametrize(
    ("args", "place"),
    [
        ([Decimal("1.10")], "args[0]"),
        ([{"when": datetime(2026, 1, 1, tzinfo=timezone.get_default_timezone())}], "args[0]['when']"),
        ([[uuid4()]], "args[0][0]"),
        ([b"x"], "args[0]"),
        ([float("nan")], "args[0]"),
        ([float("inf")], "args[0]"),
        ([{1: "a", "1": "b"}], "args[0]"),
        ([{None: 1}], "args[0]"),
        ([10**5000], "args[0]"),
        ([gettext_lazy("lazy")], "args[0]"),
        ([object()], "args[0]"),
    ],
)
def test_what_json_does_not_hold_is_refused_naming_the_place(args: list[Any], place: str) -> None:
    with transaction.atomic():
        with pytest.raises((TypeError, ValueError)) as refusal:
            tasks.echo.enqueue(*args)
        assert place in str(refusal.value)
        assert not Run.objects.exists()  # and the transaction is still usable


@pytest.mark.parametrize(
    "value", ["a\0b", "\ud83d", 2**63, 10**400, 1e22, 1.0, True, None, [], {"": [{}]}, "ź" * 10_000]
)
def test_what_json_holds_comes_back_equal(value: Any) -> None:
    """A NUL in an argument made the INSERT fail; 1e22 through jsonb came back as an int."""
    run = Run.objects.get(pk=tasks.echo.enqueue(value).id)
    assert run.args == [value]
    assert type(run.args[0]) is type(value)


def test_tuples_come_back_as_lists() -> None:
    assert Run.objects.get(pk=tasks.echo.enqueue((1, (2,))).id).args == [[1, [2]]]


def test_arguments_that_the_function_does_not_take_are_refused() -> None:
    with pytest.raises(TypeError, match=r"tests\.tasks\.add\(a, b=0\) does not take these arguments"):
        tasks.add.enqueue(1, 2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        tasks.add.enqueue(1, c=2)
    assert not Run.objects.exists()


def test_a_payload_over_the_limit_is_refused(settings: Any) -> None:
    settings.CRONOQ = {**settings.CRONOQ, "MAX_PAYLOAD": 100}
    with pytest.raises(ValueError, match="MAX_PAYLOAD"):
        tasks.echo.enqueue("x" * 200)


def test_a_task_that_cannot_work_is_refused_when_it_is_made() -> None:
    with pytest.raises(InvalidTask, match="module level"):
        task(lambda: None)
    with pytest.raises(InvalidTask, match="max_attempts"):
        tasks.add.using(max_attempts=0)
    with pytest.raises(InvalidTask, match="priority"):
        tasks.add.using(priority=101)
    with pytest.raises(InvalidTask, match="aware"):
        tasks.add.using(run_after=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="factor"):
        Backoff(factor=0.5)


def test_the_enqueued_signal_tells_of_the_run_when_it_is_committed(django_capture_on_commit_callbacks: Any) -> None:
    heard = []

    def hear(task_result: Any, **kwargs: Any) -> None:
        heard.append(task_result.id)

    task_enqueued.connect(hear)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            result = tasks.add.enqueue(1)
            assert heard == []
    finally:
        task_enqueued.disconnect(hear)
    assert heard == [result.id]


def test_results_of_every_state() -> None:
    result = tasks.add.enqueue(1)
    assert tasks.add.get_result(result.id).status == TaskResultStatus.READY
    with pytest.raises(ValueError, match="not finished"):
        _ = tasks.add.get_result(result.id).return_value
    Run.objects.filter(pk=result.id).update(status="succeeded", result=3, finished_at=timezone.now(), worker_id=uuid4())
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 1)


def test_a_failed_result_has_its_errors() -> None:
    result = tasks.fail.enqueue()
    now, worker = timezone.now(), uuid4()
    Run.objects.filter(pk=result.id).update(status="failed", reason="error", finished_at=now, worker_id=worker)
    for number in (1, 2):
        Attempt.objects.create(
            run_id=result.id,
            number=number,
            claim=number,
            worker_id=worker,
            started_at=now,
            ended_at=now,
            outcome="failed",
            exception_class="builtins.ValueError",
            error="no",
            traceback=f"Traceback {number}",
        )
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
    assert result.errors[-1].traceback == "Traceback 2"
    assert result.worker_ids == [str(worker)] * 2


@pytest.mark.parametrize("result_id", ["x", "", "01a22ec3-4a18-75dc-b3c0-437496991749", "0" * 63])
def test_an_unknown_or_malformed_id_does_not_exist(result_id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(result_id)


def test_the_result_of_a_run_whose_code_is_gone_can_be_read() -> None:
    run = Run.objects.create(trigger="enqueue", script="tests.tasks.gone", status="queued", args=7)
    result = task_backends["default"].get_result(str(run.pk))
    assert (result.status, result.args) == (TaskResultStatus.READY, [])


@pytest.mark.django_db(transaction=True)
def test_async_enqueue_and_get_result() -> None:
    async def roundtrip() -> Any:
        result = await tasks.add_async.aenqueue(1, 2)
        return await tasks.add_async.aget_result(result.id)

    result = async_to_sync(roundtrip)()
    assert Run.objects.get(pk=result.id).script == "tests.tasks.add_async"


def test_a_tasks_own_name_is_what_rows_carry() -> None:
    assert tasks.named.script_name == "shop.charge"
    run = Run.objects.get(pk=tasks.named.enqueue().id)
    assert run.script == "shop.charge"
    assert task_backends["default"].get_result(str(run.pk)).task == tasks.named
