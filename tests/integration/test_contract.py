"""What Django promises of any tasks backend: whoever writes for one must be able to change to another.

What holds for every backend is asked of each in `BACKENDS`; what only a stored queue can promise, of ours.
"""

import copy
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.db import connection, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from cronoq_django import Backoff, cancel, registry, task
from cronoq_django.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from cronoq_django.errors import CronoqError
from cronoq_django.models import Run
from cronoq_django.store.runs import claim_runs, complete_runs
from cronoq_django.tasks.task import Task
from cronoq_django.testing import DummyBackend
from cronoq_django.worker.completer import Completer
from cronoq_django.worker.executor import Execution
from tests import tasks

CRONOQ = "cronoq_django.backend.CronoqBackend"
BACKENDS = [CRONOQ, "cronoq_django.testing.ImmediateBackend", "cronoq_django.testing.DummyBackend"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("backend")]

LATER = datetime(2100, 1, 1, tzinfo=UTC)
FRAMEWORK = "django" if django.VERSION >= (6, 0) else "django_tasks"

since_6_1 = pytest.mark.skipif(django.VERSION < (6, 1), reason="Django's tasks have that from 6.1 on")


# Tasks


@task
def meaning() -> int:
    return 42


@task
async def meaning_async() -> int:
    return 42


@task(takes_context=True)
def of_context(context: Any, more: int) -> list[Any]:
    result = context.task_result
    return [result.id, context.attempt, result.attempts, str(result.status), result.args, more]


@task(takes_context=True)
async def of_context_async(context: Any) -> str:
    return str(context.task_result.id)


@task(max_attempts=1)
def fail_within() -> None:
    raise ValueError(ValueError("within"))


@task(max_attempts=1)
def leave() -> None:
    raise SystemExit("left")


def plain(a: int = 0) -> int:
    return a


def with_another_first(first: Any) -> None:
    """Of a task that takes the context, the first argument has to be called so."""


class Holder:
    def method(self) -> None:
        pass

    def __call__(self) -> None:
        pass


@task
def holds_an_inner_function() -> Callable[[], None]:
    def inner() -> None:
        pass

    return inner


# What all tests share


def configure(settings: Any, path: str, **params: Any) -> Any:
    settings.TASKS = {"default": {"BACKEND": path, **params}, "other": {"BACKEND": path}}
    return task_backends["default"]


@pytest.fixture(params=BACKENDS, ids=lambda path: path.rpartition(".")[2])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def backend(path: str, settings: Any) -> Any:
    """The backend under test, under the aliases "default" and "other"."""
    return configure(settings, path)


@pytest.fixture
def ours(path: str, backend: Any) -> Any:
    """For what only a stored queue can promise."""
    if path != CRONOQ:
        pytest.skip("asked of the stored queue only")
    return backend


@pytest.fixture
def heard() -> Iterator[list[tuple[str, Any, str]]]:
    """What Django's signals told: which, of which id, and the status then."""
    told: list[tuple[str, Any, str]] = []

    def receiver(name: str) -> Callable[..., None]:
        def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
            assert sender is type(task_backends["default"])
            told.append((name, task_result.id, str(task_result.status)))

        return receive

    receivers = [
        (signal, receiver(name))
        for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished))
    ]
    for signal, function in receivers:
        signal.connect(function)
    yield told
    for signal, function in receivers:
        signal.disconnect(function)


def work_off(most: int = 20) -> None:
    """What a worker does, in this process: claim, execute, write, tell. For ours; others have their own ways."""
    completer = Completer()
    for _ in range(most):
        with connection.cursor() as cursor:
            claimed = claim_runs(cursor, worker=uuid4(), pool="default", limit=10, lease=timedelta(minutes=1))
        for run in claimed:
            execution = Execution(run, "here")
            completion = execution.execute()
            assert completion is not None
            completer.add(execution, completion)
        with transaction.atomic(), connection.cursor() as cursor:
            batch = completer.batch()
            completed = complete_runs(cursor, [completion for _, completion in batch])
        completer.written(batch, completed)
        if not claimed:
            completer.close()
            return
    pytest.fail("there is always more to do")


def ended(result: Any) -> Any:
    """The result when its run has ended."""
    if type(task_backends["default"]) is DummyBackend:
        pytest.skip("it executes nothing")
    if not result.is_finished:
        work_off()
        result.refresh()
    assert result.is_finished
    return result


@contextmanager
def refused(message: str = "") -> Iterator[None]:
    """InvalidTask, and nothing is registered by what was refused."""
    known = registry.names()
    with pytest.raises(InvalidTask, match=message):
        yield
    assert registry.names() == known


# Making tasks


def test_the_decorator_makes_tasks_bare_and_with_options() -> None:
    made = task(queue_name="mail", priority=3)(plain)
    assert isinstance(meaning, Task)
    assert (made.func, made.queue_name, made.priority, made.run_after) == (plain, "mail", 3, None)
    assert (meaning.queue_name, meaning.priority, meaning.backend, meaning.takes_context) == (
        "default",
        0,
        "default",
        False,
    )


def test_a_task_is_found_where_it_says_that_it_is() -> None:
    assert (tasks.add.name, tasks.add_async.name) == ("add", "add_async")
    assert tasks.add.module_path == "tests.tasks.add"
    assert import_string(tasks.add.module_path) is tasks.add


@pytest.mark.parametrize(
    "function",
    [
        any,
        len,
        Holder().method,
        Holder.method.__get__(Holder()),
        Holder(),
        partial(plain, 1),
        holds_an_inner_function.func(),
        Holder,
    ],
    ids=["any", "len", "method", "bound", "callable", "partial", "inner", "class"],
)
def test_what_is_no_function_of_a_module_is_no_task(function: Any) -> None:
    with refused("module level"):
        task(function)


def test_the_context_is_taken_by_that_name_only() -> None:
    with refused("context"):
        task(takes_context=True)(with_another_first)
    with refused("context"):
        task(takes_context=True)(meaning.func)


@pytest.mark.parametrize("option", [{"run_after": LATER}, {"no_such_option": 1}])
def test_options_that_the_decorator_does_not_have_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(option))):
        task(**option)(plain)


@pytest.mark.parametrize("alias", ["default", "other"])
def test_a_task_knows_its_backend(backend: Any, alias: str) -> None:
    assert meaning.using(backend=alias).get_backend() is task_backends[alias]
    assert type(task_backends[alias]) is type(backend)
    assert task_backends[alias].alias == alias


def test_options_and_queues_of_the_settings_reach_the_backend(settings: Any, path: str) -> None:
    backend = configure(settings, path, OPTIONS={"one": 1}, QUEUES=["default", "mail"])
    assert backend.options == {"one": 1}
    assert backend.queues == {"default", "mail"}
    assert configure(settings, path).options == {}


def test_djangos_own_decorator_makes_the_backends_tasks(backend: Any) -> None:
    djangos = import_string(f"{FRAMEWORK}.tasks.task" if FRAMEWORK == "django" else f"{FRAMEWORK}.task")
    assert type(djangos(plain)) is backend.task_class
    made = djangos(priority=5, queue_name="default", takes_context=True)(of_context.func)
    assert type(made) is backend.task_class
    assert (made.priority, made.takes_context) == (5, True)


@since_6_1
def test_djangos_own_decorator_passes_our_options_on(ours: Any) -> None:
    djangos = import_string("django.tasks.task")
    made = djangos(
        max_attempts=7, timeout=30, key_for=60, script="contract.plain", aliases=["contract.before"], tags=["a"]
    )(plain)
    assert type(made) is Task
    assert (made.max_attempts, made.timeout, made.key_for) == (7, timedelta(seconds=30), timedelta(minutes=1))
    assert (made.script_name, made.aliases, made.tags) == ("contract.plain", ("contract.before",), ("a",))
    assert registry.find("contract.before").task is made
    run = Run.objects.get(pk=made.enqueue(3).id)
    assert (run.script, run.max_attempts, run.timeout) == ("contract.plain", 7, timedelta(seconds=30))
    assert ended(made.get_result(str(run.pk))).return_value == 3
    with pytest.raises(TypeError, match="no_such_option"):
        djangos(no_such_option=1)(plain)
    with refused("max_attempts"):
        djangos(max_attempts=0)(plain)


# using()

OPTIONS = {
    "priority": 7,
    "queue_name": "mail",
    "run_after": LATER,
    "backend": "other",
    "max_attempts": 9,
    "timeout": timedelta(seconds=30),
    "backoff": Backoff(first=1, factor=3),
    "expires": LATER,
    "key": "k",
    "key_for": timedelta(hours=1),
    "on_duplicate": "raise",
    "tags": ("a", "b"),
    "actor": "anna",
    "after": (uuid4(),),
    "on": "any",
}


@pytest.mark.parametrize("option", OPTIONS)
def test_using_makes_another_task_and_leaves_this_one(option: str) -> None:
    before = {field.name: getattr(meaning, field.name) for field in fields(meaning)}
    changed = meaning.using(**{option: OPTIONS[option]})
    assert getattr(changed, option) == OPTIONS[option] != before[option]
    assert {field.name: getattr(meaning, field.name) for field in fields(meaning)} == before
    again = changed.using(priority=-3)
    assert (again.priority, getattr(again, option)) == (-3, -3 if option == "priority" else OPTIONS[option])
    assert changed.using(**{option: None}) == changed  # None leaves it
    assert type(changed) is type(meaning)
    assert changed.func is meaning.func


def test_the_table_of_options_has_them_all() -> None:
    made_once = {"func", "takes_context", "script", "aliases", "retry_on", "give_up_on"}
    assert {field.name for field in fields(meaning)} - made_once == set(OPTIONS)


def test_using_without_options_gives_an_equal_copy() -> None:
    assert meaning.using() == meaning
    assert meaning.using() is not meaning


def test_using_refuses_what_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        meaning.using(no_such_option=1)


@pytest.mark.parametrize("priority", [-101, 101, 3.1, 10**30])
def test_priorities_outside_are_refused(priority: Any) -> None:
    with refused("priority must be a whole number between -100 and 100"):
        meaning.using(priority=priority)


@pytest.mark.parametrize("priority", [-100, 0, 100, 3.0])
def test_priorities_up_to_the_ends_are_taken(priority: Any) -> None:
    assert meaning.using(priority=priority).enqueue().task.priority == priority


def test_a_truth_is_no_priority() -> None:
    """It passed for 1 until the INSERT, which failed and took the caller's transaction along."""
    with refused("priority"):
        meaning.using(priority=True)


def test_a_naive_run_after_is_refused() -> None:
    with refused("run_after must be an aware datetime"):
        meaning.using(run_after=datetime(2100, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("after", [timedelta.max, timedelta(days=365 * 8000), datetime.max.replace(tzinfo=UTC)])
def test_a_run_after_that_no_calendar_has_is_refused(after: Any) -> None:
    with refused("run_after"):
        meaning.using(run_after=after)


@pytest.mark.parametrize("alias", ["unknown", "missing"])
def test_a_backend_that_is_not_there_is_refused(settings: Any, path: str, alias: str) -> None:
    settings.TASKS = {"default": {"BACKEND": path}, "missing": {"BACKEND": "does.not.exist"}}
    with pytest.raises(task_backends.exception_class, match=r"'unknown'|'does\.not\.exist'"):
        meaning.using(backend=alias)
    assert meaning.backend == "default"


def test_only_queues_of_the_settings_are_taken(settings: Any, path: str) -> None:
    configure(settings, path, QUEUES=["default", "mail"])
    assert meaning.using(queue_name="mail").queue_name == "mail"
    with refused("'elsewhere' is not valid"):
        meaning.using(queue_name="elsewhere")
    with refused("'elsewhere' is not valid"):
        task(queue_name="elsewhere")(plain)
    configure(settings, path, QUEUES=[])
    assert meaning.using(queue_name="elsewhere").queue_name == "elsewhere"


@pytest.mark.parametrize("name", ["", "x" * 101, "a\0b", "\ud83d", 7], ids=["empty", "long", "NUL", "half", "number"])
def test_queue_names_that_no_worker_can_serve_are_refused(name: Any) -> None:
    """An empty one broke the caller's transaction; one that was cut or cleaned waited in a pool that nobody served."""
    with refused("queue_name"):
        meaning.using(queue_name=name)


@pytest.mark.parametrize("name", ["x" * 501, "a\0b"], ids=["long", "NUL"])
def test_names_that_rows_would_carry_otherwise_are_refused(name: str) -> None:
    """Cut in the row, the name was one that no process knew: the run could not be decoded."""
    with refused("name"):
        task(name=name)(plain)


# Enqueue


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("one", [meaning, meaning_async], ids=["function", "coroutine"])
def test_enqueue_gives_a_result(backend: Any, one: Any, way: str) -> None:
    before = timezone.now()
    result = one.enqueue() if way == "sync" else async_to_sync(one.aenqueue)()
    assert (result.task, result.args, result.kwargs, result.backend) == (one, [], {}, "default")
    assert isinstance(result.id, str)
    assert 0 < len(result.id) <= 64
    assert abs(result.enqueued_at - before) < timedelta(minutes=1)
    if not result.is_finished:
        assert result.status == TaskResultStatus.READY
        assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
        assert (result.attempts, result.worker_ids, result.errors) == (0, [], [])
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value
    assert ended(result).return_value == 42


def test_the_backends_own_enqueue_is_the_same() -> None:
    result = task_backends["default"].enqueue(tasks.add, [1], {"b": 2})
    assert (result.args, result.kwargs) == ([1], {"b": 2})
    again = async_to_sync(task_backends["default"].aenqueue)(tasks.add, (1,), {"b": 2})
    assert (again.args, again.kwargs) == ([1], {"b": 2})
    assert again.id != result.id
    assert [ended(one).return_value for one in (result, again)] == [3, 3]


def test_arguments_are_json_from_the_start() -> None:
    """What is a list after it was stored must not be a tuple before, and what the caller changes later is another."""
    given = [1, {"a": (2, [3])}]
    result = tasks.echo.enqueue((1, given))
    given.append("later")
    assert result.args == [[1, [1, {"a": [2, [3]]}]]]
    assert tasks.echo.enqueue(value=(1,)).kwargs == {"value": [1]}
    assert ended(result).return_value == [1, [1, {"a": [2, [3]]}]]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_arguments_that_are_no_json_are_refused_at_enqueue(way: str) -> None:
    enqueue = tasks.echo.enqueue if way == "sync" else async_to_sync(tasks.echo.aenqueue)
    with pytest.raises(TypeError, match=r"args\[0\].*datetime"):
        enqueue(timezone.now())
    with pytest.raises(TypeError, match="does not take these arguments"):
        enqueue(1, 2, 3)
    assert not Run.objects.exists()


@pytest.mark.parametrize("way", ["sync", "async"])
def test_what_the_settings_allow_is_looked_at_again_at_enqueue(settings: Any, path: str, way: str) -> None:
    elsewhere = meaning.using(queue_name="elsewhere")
    configure(settings, path, QUEUES=["default"])
    with pytest.raises(InvalidTask, match="'elsewhere' is not valid"):
        _ = elsewhere.enqueue() if way == "sync" else async_to_sync(elsewhere.aenqueue)()
    assert not Run.objects.exists()


@pytest.mark.parametrize("way", ["sync", "async"])
def test_without_its_backend_a_task_says_so_and_leaves_nothing(settings: Any, way: str) -> None:
    other, result = meaning.using(backend="other"), meaning.enqueue()
    settings.TASKS = {"elsewhere": {"BACKEND": CRONOQ}}
    for one in (meaning, other):
        with pytest.raises(task_backends.exception_class, match=one.backend):
            _ = one.enqueue() if way == "sync" else async_to_sync(one.aenqueue)()
        with pytest.raises(task_backends.exception_class, match=one.backend):
            _ = one.get_result(result.id) if way == "sync" else async_to_sync(one.aget_result)(result.id)
    settings.TASKS = {}
    with pytest.raises(task_backends.exception_class):
        meaning.enqueue()
    assert Run.objects.count() <= 1  # that from before


def test_a_call_executes_at_once_and_here() -> None:
    assert meaning.call() == 42
    assert meaning_async.call() == 42
    assert tasks.add.call(1, b=2) == 3
    assert async_to_sync(meaning.acall)() == 42
    assert async_to_sync(meaning_async.acall)() == 42
    assert async_to_sync(tasks.add.acall)(1, b=2) == 3
    with pytest.raises(ValueError, match=r"^no$"):
        tasks.fail.call()
    assert not Run.objects.exists()


# Results


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_result_is_found_by_its_id(backend: Any, way: str) -> None:
    result = tasks.add.enqueue(1, b=2)
    if way == "sync":
        through_task, through_backend = tasks.add.get_result(result.id), backend.get_result(result.id)
    else:
        through_task = async_to_sync(tasks.add.aget_result)(result.id)
        through_backend = async_to_sync(backend.aget_result)(result.id)
    assert through_task == through_backend == result
    assert (through_task.task, through_task.args, through_task.kwargs) == (tasks.add, [1], {"b": 2})


@pytest.mark.parametrize(
    "result_id",
    [
        "123",
        "x",
        "",
        " ",
        "0" * 32,
        "0" * 63,
        "x" * 100_000,
        "a\0b",
        "\ud83d",
        "';--",
        "../1",
        "{}",
        None,
        7,
        b"1",
        UUID(int=7),
        str(UUID(int=8)),
    ],
    ids=repr,
)
def test_unknown_and_malformed_ids_are_of_no_result(backend: Any, result_id: Any) -> None:
    meaning.enqueue()
    for get in (meaning.get_result, backend.get_result):
        with pytest.raises(TaskResultDoesNotExist):
            get(result_id)
    for aget in (meaning.aget_result, backend.aget_result):
        with pytest.raises(TaskResultDoesNotExist):
            async_to_sync(aget)(result_id)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_result_of_another_task_is_none_of_this_one(backend: Any, way: str) -> None:
    """Whoever is let see the results of one task could read those of all."""
    result = tasks.echo.enqueue("secret")
    with pytest.raises(TaskResultDoesNotExist) as refusal:
        _ = meaning.get_result(result.id) if way == "sync" else async_to_sync(meaning.aget_result)(result.id)
    assert isinstance(refusal.value, TaskResultMismatch)
    found = backend.get_result(result.id) if way == "sync" else async_to_sync(backend.aget_result)(result.id)
    assert found == result
    assert tasks.echo.using(priority=5).get_result(result.id) == result  # the same function


@pytest.mark.parametrize("way", ["sync", "async"])
def test_refreshing_brings_what_has_happened_and_nothing_else(way: str) -> None:
    def refresh(result: Any) -> None:
        _ = result.refresh() if way == "sync" else async_to_sync(result.arefresh)()

    result = meaning.enqueue()
    before = copy.deepcopy(result)
    refresh(result)
    assert result == before
    ended(meaning.get_result(result.id))
    refresh(result)
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 42, 1)
    assert (result.id, result.task, result.enqueued_at) == (before.id, before.task, before.enqueued_at)


def test_a_successful_result() -> None:
    result = ended(tasks.add.enqueue(1, b=2))
    assert (result.status, result.return_value, result.errors) == (TaskResultStatus.SUCCESSFUL, 3, [])
    assert result.is_finished is True
    assert (result.attempts, len(result.worker_ids)) == (1, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.started_at <= result.last_attempted_at <= result.finished_at


def test_nothing_is_a_return_value_too() -> None:
    result = ended(tasks.named.enqueue())
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, None)


@pytest.mark.parametrize(
    ("failing", "attempts", "exception", "last_line"),
    [
        (tasks.fail, 3, ValueError, "ValueError: no"),
        (tasks.fail.using(max_attempts=1), 1, ValueError, "ValueError: no"),
        (fail_within, 1, ValueError, "ValueError: within"),
        (leave, 1, SystemExit, "SystemExit: left"),
    ],
    ids=["thrice", "once", "within", "exit"],
)
def test_a_failed_result_has_an_error_for_each_attempt(
    failing: Any, attempts: int, exception: type[BaseException], last_line: str
) -> None:
    result = ended(failing.enqueue())
    assert result.status == TaskResultStatus.FAILED
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert [error.exception_class for error in result.errors] == [exception] * attempts
    for error in result.errors:
        assert error.traceback.startswith("Traceback (most recent call last):\n")
        assert error.traceback.rstrip().endswith(last_line)
        assert failing.func.__name__ in error.traceback
    assert (result.attempts, len(result.worker_ids)) == (attempts, attempts)
    assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at


def test_a_result_that_is_no_json_is_a_failure() -> None:
    result = ended(tasks.unstorable.enqueue())
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert [error.exception_class for error in result.errors] == [TypeError]
    assert "result" in result.errors[0].traceback


@pytest.mark.parametrize(("dotted", "error"), [("subprocess.run", ValueError), ("does.not.exist", ImportError)])
def test_an_errors_class_is_looked_for_only_when_it_is_asked_for(dotted: str, error: type[Exception]) -> None:
    described = replace(ended(tasks.fail.enqueue()).errors[0], exception_class_path=dotted)
    with pytest.raises(error, match=dotted.partition(".")[0]):
        _ = described.exception_class


def test_the_context_has_the_result() -> None:
    result = ended(of_context.enqueue(5))
    assert result.return_value == [result.id, 1, 1, "RUNNING", [5], 5]
    result = ended(of_context_async.enqueue())
    assert result.return_value == result.id
    with pytest.raises(TypeError, match="does not take"):
        of_context.enqueue(1, 2)  # the context is not for the caller to give


def test_results_can_be_copied() -> None:
    result = ended(tasks.add.using(priority=5, timeout=30).enqueue(1))
    assert copy.deepcopy(result) == result
    assert copy.copy(result) == result


@since_6_1
@pytest.mark.parametrize(
    "one",
    [
        tasks.add,
        tasks.add_async,
        tasks.named,
        meaning,
        tasks.fail.using(
            priority=5, queue_name="mail", timeout=30, key="k", tags=["a"], after=[uuid4()], run_after=LATER
        ),
    ],
)
def test_tasks_and_results_can_be_pickled(one: Any) -> None:
    assert pickle.loads(pickle.dumps(one)) == one
    assert type(pickle.loads(pickle.dumps(one))) is type(one)
    result = ended(tasks.add.enqueue(1))
    again = pickle.loads(pickle.dumps(result))
    assert again == result
    assert again.return_value == 1


@since_6_1
@pytest.mark.parametrize("dotted", ["does.not.exist", "builtins.any", "tests.tasks.note"])
def test_only_tasks_come_out_of_a_pickle(dotted: str) -> None:
    with pytest.raises(ValueError, match=f"'{dotted}' to point to a Task"):
        Task._reconstruct({"func": dotted})


def test_the_checks_find_nothing_wrong(backend: Any) -> None:
    assert list(backend.check()) == []
    assert [message for message in run_checks() if message.is_serious()] == []


def test_the_checks_find_a_backend_that_is_not_there(settings: Any) -> None:
    settings.TASKS = {**settings.TASKS, "missing": {"BACKEND": "does.not.exist"}}
    with pytest.raises(task_backends.exception_class, match=r"does\.not\.exist"):
        run_checks()


# What only a stored queue can promise


def test_the_backend_says_what_it_can(ours: Any) -> None:
    assert ours.supports_defer
    assert ours.supports_async_task
    assert ours.supports_get_result
    assert ours.supports_priority


def test_what_was_rolled_back_is_not_there_and_was_not_told(
    ours: Any, heard: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(ZeroDivisionError), transaction.atomic():
        result = meaning.enqueue()
        assert meaning.get_result(result.id) == result  # here it is
        raise ZeroDivisionError
    with pytest.raises(TaskResultDoesNotExist):
        meaning.get_result(result.id)
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()
    assert heard == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["sync", "async", "backend"])
def test_signals_tell_of_what_is_committed(
    ours: Any, heard: list[Any], caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """Others send at once: a receiver that looked for the result of a rolled back enqueue found nothing."""
    caplog.set_level(logging.DEBUG, logger="django.tasks")
    caplog.set_level(logging.DEBUG, logger="django_tasks")
    with transaction.atomic():
        match way:
            case "sync":
                result = meaning.enqueue()
            case "async":
                result = async_to_sync(meaning.aenqueue)()
            case _:
                result = ours.enqueue(meaning, (), {})
        assert heard == []
    assert heard == [("enqueued", result.id, "READY")]
    work_off()
    assert heard[1:] == [("started", result.id, "RUNNING"), ("finished", result.id, "SUCCESSFUL")]
    said = [record.getMessage() for record in caplog.records if record.name in ("django.tasks", "django_tasks")]
    assert [result.id in line for line in said] == [True, True, True]
    assert "enqueued backend=default" in said[0]
    assert "state=RUNNING" in said[1]
    assert "state=SUCCESSFUL" in said[2]


def test_a_failure_is_told_and_logged_as_an_error(
    ours: Any, heard: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    result = ended(fail_within.enqueue())
    assert heard == [("started", result.id, "RUNNING"), ("finished", result.id, "FAILED")]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert result.id in record.getMessage()


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_fails_costs_neither_the_commit_nor_the_run(ours: Any) -> None:
    def fail(**kwargs: Any) -> None:
        raise ZeroDivisionError

    signals = (task_enqueued, task_started, task_finished)
    for signal in signals:
        signal.connect(fail)
    try:
        result = ended(meaning.enqueue())
    finally:
        for signal in signals:
            signal.disconnect(fail)
    assert (result.return_value, result.errors) == (42, [])


def test_while_it_executes_a_result_says_by_whom(ours: Any) -> None:
    result, worker = meaning.enqueue(), uuid4()
    with connection.cursor() as cursor:
        claim_runs(cursor, worker=worker, pool="default", limit=1, lease=timedelta(minutes=1))
    result.refresh()
    assert (result.status, result.is_finished) == (TaskResultStatus.RUNNING, False)
    assert (result.worker_ids, result.attempts, result.errors) == ([str(worker)], 1, [])
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


def test_what_waits_is_ready(ours: Any) -> None:
    scheduled = meaning.using(run_after=LATER).enqueue()
    blocked = meaning.using(after=[scheduled]).enqueue()
    for result, status in ((scheduled, "scheduled"), (blocked, "blocked")):
        assert Run.objects.get(pk=result.id).status == status
        result.refresh()
        assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)


def test_what_never_ran_has_failed_and_says_why(ours: Any) -> None:
    result = meaning.enqueue()
    cancel(result, actor="anna")
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.FAILED, True, 0)
    assert [error.exception_class for error in result.errors] == [CronoqError]
    assert "anna" in result.errors[0].traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_an_alias_changes_nothing_but_its_name(ours: Any) -> None:
    result = meaning.using(backend="other").enqueue()
    assert result.backend == "other"
    assert task_backends["other"].get_result(result.id).backend == "other"
    result.refresh()
    assert ended(result).return_value == 42


def test_a_result_can_be_read_when_its_queue_is_no_longer_in_the_settings(settings: Any, ours: Any) -> None:
    """A queue was taken out of the settings together with its tasks: the results of those could not be read."""
    known = meaning.using(queue_name="old").enqueue()
    gone = Run.objects.create(trigger="enqueue", script="tests.tasks.gone", status="queued", pool="old")
    backend = configure(settings, CRONOQ, QUEUES=["default"])
    assert backend.get_result(known.id).status == TaskResultStatus.READY
    assert backend.get_result(str(gone.pk)).status == TaskResultStatus.READY
