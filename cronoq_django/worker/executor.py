"""The executor: runs a task's function in a thread and says how that ended.

Each run has a context of its own (time zone, language and context variables end with it) and finds a usable database
connection; what it leaves behind, an open transaction for one, is cleared away before the next.
"""

import asyncio
import contextvars
import ctypes
import logging
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.dispatch import Signal

from cronoq_django import registry
from cronoq_django.compat import DEFAULT_TASK_BACKEND_ALIAS, TaskContext, TaskResult, TaskResultStatus, task_started
from cronoq_django.conf import conf
from cronoq_django.errors import Discard, Quarantined, Retry, Snooze
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.models.fields import dump_json, load_json
from cronoq_django.schedules import Backoff
from cronoq_django.store import clock
from cronoq_django.store.runs import MOST_ATTEMPTS, ClaimedRun, Completion, Detail
from cronoq_django.tasks.context import Report, RunContext, enter
from cronoq_django.worker.charging import NEVER, Entry, Ledger
from cronoq_django.worker.connections import clear_connections, reopen_connections, watch_connections

logger = logging.getLogger("cronoq.worker")

MOST_TOLD = 10_000  # attempts that Django's signals are told of: it wants a list with an entry for each


class TimedOut(BaseException):
    """Raised in the thread of a task that used up its time."""

    def __str__(self) -> str:
        return "the attempt used up its time"


class Killed(TimedOut):
    """Stands for the end of a task that ignored that its time was over."""

    def __str__(self) -> str:
        return "the attempt used up its time, and did not end within the grace: its process was ended"


class CancelledByRequest(BaseException):
    """Raised in the thread of a task that somebody cancelled."""

    def __str__(self) -> str:
        return "the run was cancelled"


class LeaseLost(BaseException):
    """Raised in the thread of a task whose run another worker may have by now."""

    def __str__(self) -> str:
        return "the run was taken over"


class Execution:
    """One claimed run in this process: waiting for its thread, executing, or done."""

    def __init__(self, run: ClaimedRun, worker: str, ledger: Ledger | None = None) -> None:
        self.run = run
        self.worker = worker
        self.claimed_at = time.monotonic()
        self.entry = Entry(ledger)
        self.begun_at: float | None = None  # monotonic; None while it waits for a thread
        self.report = Report()
        self.was_busy = False  # its row, when its outcome was to be written
        self.marked = False  # whether the database knows that it began
        self._settled = False  # it has its one outcome: of the task, or that it was given back
        self._decoded = False  # what is raised from now on is the task's own
        self._thread: int | None = None
        self._is_coroutine = False
        self._coroutine: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._interruption: type[BaseException] | None = None
        self._interrupted = threading.Event()
        self._lock = threading.Lock()

    @property
    def key(self) -> tuple[UUID, int]:
        """Run and claim: this process may own a run again while an attempt that it lost still executes."""
        return self.run.id, self.run.claim

    def detail(self) -> Detail | None:
        """What it says of itself, if there is something new."""
        if (said := self.report.news()) is None:
            return None
        return Detail(*self.key, said.progress_done, said.progress_total, said.message, said.log)

    @property
    def took(self) -> timedelta | None:
        """How long it has been executing; None if it never began."""
        return None if self.begun_at is None else timedelta(seconds=time.monotonic() - self.begun_at)

    @property
    def is_out_of_time(self) -> bool:
        return self.run.timeout is not None and self.took is not None and self.took > self.run.timeout

    def interrupt(self, exception: type[BaseException]) -> None:
        """End the task with `exception`, once: a coroutine is cancelled, a function has it raised in its thread, at its
        next bytecode, so a blocking C call ends first. What does not end within the grace ends with its process."""
        with self._lock:
            if self._thread is None or self._interruption is not None:
                return
            self.entry.end_by(time.monotonic() + conf().grace.total_seconds())
            self._interruption = exception
            self._interrupted.set()
            if self._is_coroutine:
                if self._coroutine is not None:
                    loop, task = self._coroutine
                    loop.call_soon_threadsafe(task.cancel)
                return
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(exception))

    def give_back(self, *, begun: bool) -> bool:
        """Stop waiting for it: if it has not begun (then it never will), or if `begun` says to; whether so."""
        with self._lock:
            if self._settled or (self.begun_at is not None and not begun):
                return False
            self._settled = True
            return True

    def execute(self) -> Completion | None:
        """Run the task: its outcome, or None if it was given back meanwhile. Never raises."""
        with self._lock:
            if self._settled:
                return None
            self.begun_at = time.monotonic()
            limit = NEVER if self.run.timeout is None else (self.run.timeout + conf().grace).total_seconds()
            self.entry.begin(self.run.claim, self.begun_at + limit)
        completion = self._execute()
        with self._lock:
            if self._settled:
                return None
            self._settled = True
        return completion

    def _execute(self) -> Completion:
        """Whatever happens is an outcome."""
        try:
            try:
                with self._lock:
                    self._thread = threading.get_ident()
                result = contextvars.copy_context().run(self._call)
            finally:
                with self._lock:
                    self._thread = None
                    self.entry.end_by(NEVER)
                if self._interruption is not None and not self._is_coroutine:
                    time.sleep(0.001)  # an interruption on its way arrives here, not in our own code further down
            return self._succeeded(result)
        except BaseException as error:
            try:
                return self.failed(error)
            except BaseException as failure:  # a thread that dies here would leave its run running for ever
                return self._ended(failure, Outcome.FAILED, Status.FAILED, Reason.ERROR)

    def _call(self) -> Any:
        run = self.run
        script = registry.find(run.script)
        args, kwargs = arguments(run)
        script.bind(args, kwargs)
        context = RunContext(
            id=run.id,
            script=run.script,
            attempt=run.attempts + 1,
            job_name=run.job_name,
            scheduled_for=run.scheduled_for,
            root=run.root_id,
            deadline=None if run.timeout is None else clock.now() + run.timeout,
            report=self.report,
            interrupted=self._interrupted,
        )
        enter(context)
        result = self.task_result(script.task, args, kwargs)
        tell(task_started, script.task, result)
        if script.task.takes_context:
            args = [TaskContext(task_result=result), *args]
        self._decoded = True
        function = script.task.func
        if iscoroutinefunction(function):
            self._is_coroutine = True
            return async_to_sync(self._await)(function, args, kwargs)
        return function(*args, **kwargs)

    async def _await(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A coroutine runs in a loop of its own; sync parts of it come back to this thread, with its connections."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a coroutine that executes is in one)
        with self._lock:
            self._coroutine = asyncio.get_running_loop(), task
        try:
            if self._interruption is not None:
                raise asyncio.CancelledError
            return await function(*args, **kwargs)
        except asyncio.CancelledError:
            if self._interruption is None:
                raise
            raise self._interruption() from None
        finally:
            with self._lock:
                self._coroutine = None

    def task_result(self, task: Any, args: list[Any], kwargs: dict[str, Any]) -> TaskResult:
        """This run as Django's signals and `takes_context` tasks see it."""
        return TaskResult(
            task=task,
            id=str(self.run.id),
            status=TaskResultStatus.RUNNING,
            enqueued_at=self.run.created_at,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=getattr(task, "backend", DEFAULT_TASK_BACKEND_ALIAS),
            errors=[],
            worker_ids=[self.worker] * min(self.run.attempts + 1, MOST_TOLD),
        )

    def _succeeded(self, result: Any) -> Completion:
        try:
            text = dump_json(result, "result")
            if len(text) > conf().max_payload:
                raise ValueError(
                    f"result: {len(text):,} bytes of JSON, over CRONOQ['MAX_PAYLOAD'] = {conf().max_payload:,}"
                )
        except (TypeError, ValueError) as error:
            return self.unstorable(error)
        return self._completion(outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED, result=text)

    def failed(self, error: BaseException) -> Completion:
        """How an attempt ends that this was raised in."""
        match error:
            case Snooze():
                return self._completion(outcome=Outcome.SNOOZED, status=Status.QUEUED, delay=error.for_, counts=False)
            case Discard():
                return self._ended(error, Outcome.FAILED, Status.FAILED, Reason.DISCARDED)
            case Quarantined() if not self._decoded:
                return self.quarantined(error)
            case CancelledByRequest():
                return self._ended(error, Outcome.CANCELLED, Status.CANCELLED, Reason.REQUESTED)
        attempt = self.run.attempts + 1
        timed_out = isinstance(error, TimedOut)
        outcome = Outcome.TIMED_OUT if timed_out else Outcome.FAILED
        if attempt >= min(self.run.max_attempts, MOST_ATTEMPTS) or not self._is_retried(error):
            return self._ended(error, outcome, Status.FAILED, Reason.TIMEOUT if timed_out else Reason.ERROR)
        delay = error.after if isinstance(error, Retry) and error.after is not None else self._backoff().delay(attempt)
        return self._ended(error, outcome, Status.QUEUED, "", delay=delay)

    def _is_retried(self, error: BaseException) -> bool:
        """Whether the task's policy has another attempt follow after this error. Whoever raises Retry asks for one."""
        if not isinstance(error, Exception) or isinstance(error, Retry | Quarantined) or not self._decoded:
            return True
        task = registry.find(self.run.script).task
        return isinstance(error, getattr(task, "retry_on", Exception)) and not isinstance(
            error, getattr(task, "give_up_on", ())
        )

    def _backoff(self) -> Backoff:
        try:
            return Backoff.load(self.run.backoff)
        except (ValueError, RecursionError):
            return Backoff()  # a broken policy, put in by SQL, must not cost the run its retry

    def _ended(
        self,
        error: BaseException,
        outcome: Outcome,
        status: Status,
        reason: Reason | str,
        *,
        delay: timedelta = timedelta(),
        counts: bool = True,
    ) -> Completion:
        described = traceback.TracebackException.from_exception(error)
        return self._completion(
            outcome=outcome,
            status=status,
            reason=reason,
            delay=delay,
            counts=counts,
            error="".join(described.format_exception_only()).strip(),
            exception_class=f"{type(error).__module__}.{type(error).__qualname__}",
            traceback="".join(described.format()),
        )

    def killed(self) -> Completion:
        """How an attempt ends whose process was ended, since it had ignored that its time was over."""
        limit = (self.run.timeout or timedelta()) + conf().grace
        self.begun_at = time.monotonic() - limit.total_seconds()
        return self.failed(Killed())

    def _completion(self, **fields: Any) -> Completion:
        return Completion(id=self.run.id, claim=self.run.claim, took=self.took, **fields)

    def quarantined(self, error: Quarantined) -> Completion:
        """Can't be decoded: failed, uncharged, and never in the way again."""
        return self._ended(error, Outcome.FAILED, Status.FAILED, Reason.QUARANTINED, counts=False)

    def unstorable(self, error: Exception) -> Completion:
        """The work is done, but its result can't be kept: it ends, once, and says so."""
        return self._ended(error, Outcome.FAILED, Status.FAILED, Reason.UNSTORABLE)

    def released(self, why: str) -> Completion:
        """Given back to the queue, uncharged; what it still does is refused by the claim."""
        return self._completion(outcome=Outcome.RELEASED, status=Status.QUEUED, error=why, counts=False)


def arguments(run: ClaimedRun) -> tuple[Any, Any]:
    """The arguments of a claimed run: a list and a dict, if nobody put anything else there. Raises Quarantined."""
    try:
        args, kwargs = load_json(run.args), load_json(run.kwargs)
    except ValueError as error:
        raise Quarantined(f"the arguments can't be read: {error}") from error
    return args, kwargs


class Executor:
    """The threads of one pool."""

    def __init__(self, pool: str, size: int, done: Callable[[Execution, Completion], None]) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix=f"cronoq-{pool}")
        self._done = done
        watch_connections()

    def submit(self, execution: Execution) -> None:
        """Execute in the next free thread; `done` is called there with the outcome."""
        self._threads.submit(self._work, execution)

    def _work(self, execution: Execution) -> None:
        reopen_connections()
        completion = execution.execute()
        clear_connections()
        if completion is not None:
            self._done(execution, completion)

    def shutdown(self) -> None:
        """Take no more; what executes goes on."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def tell(signal: Signal, task: Any, result: TaskResult) -> None:
    """Send one of Django's task signals. A receiver that fails is logged: it must not fail the run."""
    for receiver, answer in signal.send_robust(sender=type(task.get_backend()), task_result=result):
        if isinstance(answer, Exception):
            logger.error("A receiver of a task signal failed: %r", receiver, exc_info=answer)
