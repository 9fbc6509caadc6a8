"""Tasks for the tests. Those that must be seen from outside append a line to a file."""

import asyncio
import builtins
import decimal
import logging
import os
import signal
import threading
import time
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import OperationalError

from cronoq_django import Backoff, Discard, Retry, Snooze, current_run, task
from cronoq_django.models import Pool, Run
from cronoq_django.worker.executor import CancelledByRequest

AT_ONCE = Backoff(first=0)


def note(path: str, line: str) -> None:
    """Append a line in one write, so that lines of several processes don't mix."""
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task(name="shop.charge")
def named() -> None:
    pass


@task
def echo(value: Any) -> Any:
    return value


@task
async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@task
async def sleep_async(seconds: float) -> None:
    await asyncio.sleep(seconds)


@task(takes_context=True)
def attempt_of(context: Any) -> int:
    return int(context.attempt)


@task(backoff=AT_ONCE)
def fail(message: str = "no") -> None:
    raise ValueError(message)


@task(max_attempts=5, backoff=AT_ONCE)
def succeed_on(attempt: int) -> int:
    run = current_run()
    assert run is not None
    if run.attempt < attempt:
        raise ConnectionError(f"attempt {run.attempt}")
    return run.attempt


@task
def snooze_once(path: str) -> str:
    if not Path(path).exists():
        note(path, "snoozed")
        raise Snooze(timedelta())
    return "awake"


@task(max_attempts=1)
def snooze_for(value: Any) -> None:
    raise Snooze(value)


@task
def discard() -> None:
    raise Discard("no such order")


@task
def retry_after(seconds: float) -> None:
    raise Retry("the server is busy", after=timedelta(seconds=seconds))


@task(timeout=0.3, max_attempts=1)
def never_return() -> None:
    while True:
        time.sleep(0.01)


@task
def unstorable() -> object:
    return {1: "keys are text"}


@task(max_attempts=3, backoff=AT_ONCE)
def hold(path: str, seconds: float) -> str:
    """Say that it has begun, and take its time."""
    note(path, f"{os.getpid()} begun")
    time.sleep(seconds)
    note(path, f"{os.getpid()} ended")
    return "held"


@task
def count_line(path: str, line: str = "ran", seconds: float = 0.0) -> None:
    note(path, line)
    time.sleep(seconds)


@task(max_attempts=2, backoff=AT_ONCE)
def leave_a_mess(kind: str) -> None:
    """What a task may do to its worker."""
    from django.db import IntegrityError, connection, transaction
    from django.utils import timezone, translation

    match kind:
        case "kill":
            time.sleep(0.3)  # until the worker has noted that it began
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancelled":
            raise asyncio.CancelledError
        case "begin":
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
        case "broken":
            with transaction.atomic():
                try:
                    with connection.cursor() as cursor:
                        cursor.execute("INSERT INTO cronoq_pool (name) VALUES (NULL)")
                except IntegrityError:
                    pass
        case "close":
            connection.close()
        case "zone":
            timezone.activate("Asia/Tokyo")
            translation.activate("pl")
        case "silent":
            raise _SilentError
        case "generator exit":
            raise GeneratorExit
        case "group":
            raise BaseExceptionGroup("several", [SystemExit(1), ValueError("no")])
        case "recursion":
            leave_a_mess.func(kind)
        case "thread":
            threading.Thread(target=time.sleep, args=(600,)).start()
        case "context":
            spoilt.set("spoilt")
        case "session":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SET search_path = pg_catalog; SET TIME ZONE 'Asia/Tokyo'; "
                    "SET default_transaction_read_only = on; SELECT pg_advisory_lock(31); LISTEN leftover; "
                    "CREATE TEMP TABLE leftover (n int); PREPARE leftover AS SELECT 1; "
                    "SET statement_timeout = 1"
                )


spoilt: ContextVar[str] = ContextVar("spoilt", default="clean")


@task
def session_of() -> list[Any]:
    """How a task finds the connection, and the context."""
    from django.db import connection

    asked = (
        "SELECT current_setting('statement_timeout'), current_setting('search_path'), current_setting('TimeZone'), "
        "current_setting('transaction_read_only'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
        "pid = pg_backend_pid()), (SELECT count(*) FROM pg_listening_channels()), "
        "(SELECT count(*) FROM pg_prepared_statements WHERE name = 'leftover'), to_regclass('pg_temp.leftover')::text"
    )
    with connection.cursor() as cursor:
        cursor.execute(asked)
        return [os.getpid(), spoilt.get(), *cursor.fetchone()]


class _SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this fails")


@task
def surroundings() -> list[str]:
    from django.db import connection
    from django.utils import timezone, translation

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return [timezone.get_current_timezone_name(), translation.get_language(), str(connection.in_atomic_block)]


@task
def make_pool(name: str) -> None:
    """Writes a row, or fails in the database."""
    Pool.objects.create(name=name)


@task
def enqueue_another(value: str) -> None:
    echo.enqueue(value)


@task
def enqueue_itself() -> None:
    enqueue_itself.enqueue()


@task(
    name="tests.raises", aliases=["tests.tasks.raised"], retry_on=[OSError, Retry], give_up_on=[ConnectionRefusedError]
)
def raise_one(name: str) -> None:
    """Raises a built-in exception by its name, or asks for another attempt."""
    raise Retry(after=0) if name == "Retry" else getattr(builtins, name)(name)


@task
def report(done: int, total: int, message: str) -> None:
    """Say how far it is, and log with loggers of its own and of others."""
    run = current_run()
    assert run is not None
    run.logger.info("begun")
    run.logger.debug("nothing for people")
    logging.getLogger("tests.other").warning("from %s", "another logger")
    run.progress(done, total, message)
    run.logger.info("%d of %d", done, total)


@task
def report_and_wait(path: str) -> None:
    """Say how far it is until the file is there, or somebody cancels it."""
    run = current_run()
    assert run is not None
    run.logger.info("waiting")
    for number in range(10_000):
        run.progress(number, 10_000)
        if Path(path).exists() or run.cancelled:
            return
        time.sleep(0.01)


@task
def deadline_in() -> float | None:
    run = current_run()
    assert run is not None
    return run.deadline and (run.deadline - datetime.now(UTC)).total_seconds()


def raise_one_else(name: str) -> None:
    """A function that is no task."""


@task
def delete_runs() -> None:
    Run.objects.all().delete()


@task
def enqueue_and_break(name: str) -> None:
    echo.enqueue(name)
    Pool.objects.create(name=name)


@task(max_attempts=1)
def hold_interpreter(path: str, seconds: float) -> None:
    """One call into C that lets no other thread of the process run, for about so long."""
    numbers = range(1_000_000)
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        sum(numbers)
        took.append(time.perf_counter() - begun)
    note(path, "begun")
    sum(range(int(seconds / min(took)) * len(numbers)))
    note(path, "ended")


@task
def ignore_everything(path: str) -> None:
    """It goes on whatever is raised in it."""
    note(path, "begun")
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            note(path, "ignored")


@task(max_attempts=3)
def kill_worker(path: str, everybody: bool) -> None:
    """Ends its process at once, as one that is out of memory; or the supervisor with it."""
    note(path, "begun")
    if everybody:
        os.killpg(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@task(max_attempts=30)
def count_line_slowly(path: str, line: str, seconds: float) -> None:
    note(path, f"{line} {os.getpid()}")
    time.sleep(seconds)


@task(max_attempts=2)
def count_line_twice(path: str, line: str) -> None:
    """Fails at first, and asks for another attempt at once."""
    note(path, line)
    run = current_run()
    assert run is not None
    if run.attempt == 1:
        raise Retry("once more", after=0)


@task
def grow(megabytes: int) -> None:
    """Keep that much memory for good."""
    _kept.append(bytearray(os.urandom(1024) * 1024 * megabytes))


_kept: list[bytearray] = []


@task(max_attempts=5, backoff=AT_ONCE)
def outlive(folder: str, ending: str) -> str:
    """Each attempt waits for its file; the first one then ends as it is told, later ones succeed."""
    run = current_run()
    assert run is not None
    note(f"{folder}/lines", f"{ending} {run.attempt}")
    run.progress(run.attempt, 5, f"attempt {run.attempt}")
    while not Path(f"{folder}/end-{run.attempt}").exists():
        time.sleep(0.01)
    match ending if run.attempt == 1 else "success":
        case "failure":
            raise Discard("of the first attempt")
        case "snooze":
            raise Snooze(0)
        case "retry":
            raise Retry("of the first attempt", after=0)
        case "cancel":
            raise CancelledByRequest
    return f"attempt {run.attempt}"


@task(max_attempts=1)
def spoil(kind: str) -> None:
    """What else a task may leave, in its thread and in connections."""
    from django.db import connection, connections, transaction

    match kind:
        case "no autocommit":
            transaction.set_autocommit(False)
            Pool.objects.create(name="never committed")
        case "left atomic":
            transaction.atomic().__enter__()
            Pool.objects.create(name="never committed")
        case "closed inside":
            transaction.atomic().__enter__()
            Pool.objects.create(name="never committed")
            connection.close()
        case "lost":
            with connection.cursor() as cursor, suppress(OperationalError):
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        case "refusing":
            _left.append(connection.execute_wrapper(_refuse))
            _left[-1].__enter__()
        case "other aliases":
            for alias, changes in {"twin": {}, "memory": _IN_MEMORY}.items():
                connections.databases.setdefault(alias, {**connections.databases["default"], **changes})
                transaction.atomic(using=alias).__enter__()
                with connections[alias].cursor() as cursor:
                    cursor.execute("CREATE TEMP TABLE leftover (n int)")
        case "decimals":
            decimal.getcontext().prec = 3
        case "event loop":
            asyncio.set_event_loop(asyncio.new_event_loop())


@task(max_attempts=1)
async def spoil_async(kind: str) -> None:
    """The same of a coroutine."""
    await asyncio.sleep(0)
    match kind:
        case "cancels itself":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(600)
        case "leaves a task":
            _left.append(asyncio.create_task(asyncio.sleep(600)))
            await asyncio.sleep(0)
        case "leaves a transaction":
            await sync_to_async(spoil.func)("left atomic")
        case _:
            leave_a_mess.func(kind)


_left: list[Any] = []  # else it would end with its last reference
_IN_MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": {}}


def _refuse(*arguments: Any) -> None:
    raise RuntimeError("no statement is let through")


@task
def outlook() -> list[Any]:
    """All that a task may find changed."""
    from django.db import connection

    return [*session_of.func(), *surroundings.func(), connection.get_autocommit(), decimal.getcontext().prec]


@task
async def outlook_async() -> list[Any]:
    return list(await sync_to_async(outlook.func)())


@task(max_attempts=1)
def count_pools() -> int:
    return Pool.objects.count()


@task(max_attempts=1)
async def count_pools_async() -> int:
    return await Pool.objects.acount()


@task(max_attempts=1)
async def count_pools_elsewhere() -> int:
    """In a thread that is the task's own."""
    return int(await sync_to_async(Pool.objects.count, thread_sensitive=False)())


@task(max_attempts=1)
def count_pools_twice(seconds: float) -> int:
    """Ask the database, take some time, and ask again."""
    before = Pool.objects.count()
    time.sleep(seconds)
    return Pool.objects.count() - before


@task
def queries_noted() -> int:
    """How many queries Django has noted on this connection when a task begins."""
    from django.db import connection

    return len(connection.queries_log)
