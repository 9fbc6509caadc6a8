"""The backends without a database: they take and refuse what the real one does, and tell how it would end."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from cronoq_django import Duplicate, enqueue_many
from cronoq_django.compat import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_backends, task_finished
from cronoq_django.errors import NotFound
from cronoq_django.testing import DummyBackend, ImmediateBackend
from tests import tasks

READY, FAILED, SUCCESSFUL = TaskResultStatus.READY, TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL


@pytest.fixture
def immediate(settings: Any) -> ImmediateBackend:
    settings.TASKS = {"default": {"BACKEND": "cronoq_django.testing.ImmediateBackend"}}
    return task_backends["default"]


@pytest.fixture
def dummy(settings: Any) -> DummyBackend:
    settings.TASKS = {"default": {"BACKEND": "cronoq_django.testing.DummyBackend"}}
    return task_backends["default"]


def test_the_dummy_keeps_and_executes_nothing(dummy: DummyBackend) -> None:
    result = tasks.add.using(run_after=timedelta(hours=1), priority=9, queue_name="mail").enqueue(1, b=2)
    assert dummy.results == [result]
    assert (result.status, result.args, result.kwargs) == (READY, [1], {"b": 2})
    assert tasks.add.get_result(result.id).id == result.id
    dummy.clear()
    with pytest.raises(TaskResultDoesNotExist):
        dummy.get_result(result.id)


def test_the_immediate_one_executes_at_once(immediate: ImmediateBackend) -> None:
    result = tasks.add.enqueue(1, b=2)
    assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 3, 1)
    assert tasks.add_async.enqueue(1, 2).return_value == 3
    assert tasks.attempt_of.enqueue().return_value == 1


@pytest.mark.parametrize("value", ["a\0b", "\ud83d", 1e22, 2**63, [1, (2, 3)], {"a": None}])
def test_arguments_and_results_come_back_as_from_a_row(immediate: ImmediateBackend, value: Any) -> None:
    """A backend in memory handed tuples and dates on as they were; production did not."""
    kept = [1, [2, 3]] if isinstance(value, list) else value
    result = tasks.echo.enqueue(value)
    assert (result.args, result.return_value) == ([kept], kept)


@pytest.mark.parametrize(
    "value",
    [float("nan"), {1: "a", "1": "b"}, b"x", UUID(int=1), datetime(2026, 1, 1), pytest.param(10**5000, id="long")],  # noqa: DTZ001
)
@pytest.mark.parametrize("backend", ["immediate", "dummy"])
def test_what_the_real_one_refuses_is_refused(request: Any, backend: str, value: Any) -> None:
    memory = request.getfixturevalue(backend)
    with pytest.raises((TypeError, ValueError), match=r"args\[0\]"):
        tasks.echo.enqueue(value)
    with pytest.raises(TypeError, match="does not take these arguments"):
        tasks.add.enqueue()
    with pytest.raises(NotFound):
        tasks.add.using(after=[uuid4()]).enqueue(1)
    bound = tasks.add.bind(1)
    with pytest.raises(ValueError, match="wait for each other"):
        enqueue_many([bound.wait_for(bound)])
    with pytest.raises(InvalidTask):
        tasks.add.using(priority=1000)
    assert memory.results == []


def test_it_is_tried_as_often_as_the_task_allows(immediate: ImmediateBackend) -> None:
    result = tasks.succeed_on.enqueue(3)
    assert (result.return_value, result.attempts) == (3, 3)
    assert [error.exception_class for error in result.errors] == [ConnectionError, ConnectionError]
    failed = tasks.fail.using(max_attempts=2).enqueue()
    assert (failed.status, failed.attempts, len(failed.errors)) == (FAILED, 2, 2)
    assert "ValueError: no" in failed.errors[-1].traceback
    assert tasks.discard.enqueue().attempts == 1
    assert tasks.unstorable.enqueue().status == FAILED
    assert tasks.snooze_for.enqueue(60).status == READY


@pytest.mark.parametrize(
    ("prerequisite", "on", "status"),
    [
        (tasks.add.bind(1), "success", SUCCESSFUL),
        (tasks.add.bind(1), "failure", FAILED),
        (tasks.add.bind(1), "any", SUCCESSFUL),
        (tasks.discard.bind(), "success", FAILED),
        (tasks.discard.bind(), "failure", SUCCESSFUL),
        (tasks.discard.bind(), "any", SUCCESSFUL),
    ],
)
def test_what_waits_comes_after_what_it_waits_for(
    immediate: ImmediateBackend, prerequisite: Any, on: str, status: Any
) -> None:
    waiting, _ = enqueue_many([tasks.add.using(after=prerequisite, on=on).bind(2), prerequisite])
    assert waiting.status == status
    assert [result.id for result in immediate.results] == [str(prerequisite.id), waiting.id]


def test_a_key_is_held_while_the_run_is_open_or_as_long_as_was_said(
    dummy: DummyBackend, request: Any, settings: Any
) -> None:
    keyed = tasks.add.using(key="k", key_for=60)
    first, again = keyed.enqueue(1), keyed.enqueue(2)
    assert (first.created, again.created, again.id, len(dummy.results)) == (True, False, first.id, 1)
    with pytest.raises(Duplicate):
        keyed.using(on_duplicate="raise").enqueue(3)
    request.getfixturevalue("immediate")
    first = keyed.enqueue(1)
    assert keyed.enqueue(2).id == first.id
    assert tasks.add.using(key="other").enqueue(1).created
    assert tasks.add.using(key="other").enqueue(1).created


def test_signals_are_sent(immediate: ImmediateBackend) -> None:
    heard: list[Any] = []

    def hear(task_result: Any, **kwargs: Any) -> None:
        heard.append((UUID(task_result.id), task_result.status))

    task_finished.connect(hear)
    try:
        result = tasks.add.enqueue(1)
    finally:
        task_finished.disconnect(hear)
    assert heard == [(UUID(result.id), SUCCESSFUL)]


def test_a_batch_with_one_key_twice_is_refused_if_that_was_asked(dummy: DummyBackend, request: Any) -> None:
    keyed = tasks.add.using(key="k", on_duplicate="raise")
    with pytest.raises(Duplicate):
        enqueue_many([keyed.bind(1), keyed.bind(2)])
    assert dummy.results == []


def test_what_stands_for_another_and_what_is_late(immediate: ImmediateBackend) -> None:
    first = tasks.add.using(key="k", key_for=60).enqueue(1)
    again = tasks.add.using(key="k").bind(2)
    waiting = tasks.add.using(after=[again]).bind(3)
    results = enqueue_many([again, waiting])
    assert [result.id for result in results] == [first.id, str(waiting.id)]
    assert results[1].status == SUCCESSFUL
    bound = tasks.add.bind(1)
    assert [result.created for result in (*enqueue_many([bound]), *enqueue_many([bound]))] == [True, False]
    assert tasks.add.using(expires=timedelta(0)).enqueue(1).status == FAILED
    snoozed = tasks.snooze_for.enqueue(60)
    assert tasks.add.using(after=snoozed).enqueue(1).status == READY
