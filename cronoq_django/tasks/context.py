"""What a running task can ask and say of its run."""

import logging
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

LOG_LIMIT = 64_000  # characters; of a longer log the end is kept, where the trouble is

# Its records are kept with the run, and go on to the project's own handlers. No level of the project's is in the way.
logger = logging.getLogger("cronoq_django.run")
logger.setLevel(logging.INFO)


@dataclass(frozen=True, slots=True)
class Said:
    """What a run has said of itself by now."""

    progress_done: int | None = None
    progress_total: int | None = None
    message: str = ""
    log: str = ""


class Report:
    """Gathers what a run says, from any thread; `news` hands it out when there is something new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._length = 0
        self._progress: tuple[int | None, int | None] = None, None
        self._message = ""
        self._is_new = False

    def progress(self, done: int, total: int | None, message: str | None) -> None:
        with self._lock:
            self._progress = done, total
            self._message = self._message if message is None else message
            self._is_new = True

    def write(self, line: str) -> None:
        """Add a line to the log."""
        with self._lock:
            self._lines.append(line[-LOG_LIMIT:])
            self._length += len(self._lines[-1]) + 1
            while self._length > LOG_LIMIT and len(self._lines) > 1:
                self._length -= len(self._lines.pop(0)) + 1
            self._is_new = True

    def news(self) -> Said | None:
        """All that was said, if there is something new since the last time."""
        with self._lock:
            if not self._is_new:
                return None
            self._is_new = False
            return Said(*self._progress, self._message, "\n".join(self._lines))

    def keep(self) -> None:
        """What was handed out could not be written: it is new still."""
        with self._lock:
            self._is_new = True


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run that this code executes: `attempt` counts from 1, `scheduled_for` is the slot (aware UTC) or None,
    `deadline` the instant at which its timeout ends it (aware UTC) or None."""

    id: UUID
    script: str
    attempt: int
    job_name: str = ""
    scheduled_for: datetime | None = None
    root: UUID | None = None
    deadline: datetime | None = None
    report: Report = field(default_factory=Report, repr=False, compare=False)
    interrupted: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        """Say how far it is, for people to see. Costs nothing here: it is written at most once a second.

        >>> current_run().progress(n, len(orders), f"order {order.number}")

        Raises ValueError for numbers that are negative, or longer than PostgreSQL's.
        """
        for name, number in (("done", done), ("total", total)):
            if number is not None and not 0 <= number < 2**63:
                raise ValueError(f"progress: {name} must be a whole number from 0 to 2**63 - 1, not {number!r}")
        self.report.progress(int(done), None if total is None else int(total), message)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked that the run be cancelled, or its time is over. It is interrupted then; one that is in
        a long call, or holds on to what it does, looks here and returns."""
        return self.interrupted.is_set()

    @property
    def logger(self) -> logging.Logger:
        """A logger whose records are kept with the run, as all are that the run logs and that no level holds back."""
        return logger


_current: ContextVar[RunContext | None] = ContextVar("cronoq_current_run", default=None)


def current_run() -> RunContext | None:
    """The run being executed here, or None outside of a task.

    >>> run = current_run()
    >>> run.scheduled_for  # the slot of a scheduled run
    """
    return _current.get()


def enter(run: RunContext) -> None:
    """Make `run` the current one of this context. For the executor, which gives each run a context of its own."""
    _current.set(run)


class RunLog(logging.Handler):
    """Keeps what a run logs with the run. A worker has one at its root logger."""

    def emit(self, record: logging.LogRecord) -> None:
        run = _current.get()
        # The framework logs the begin of each run, which would give a row to those that say nothing.
        if run is not None and record.levelno >= logging.INFO and record.name not in ("django.tasks", "django_tasks"):
            try:
                run.report.write(self.format(record))
            except Exception:  # as handlers do: what is logged must not fail the run
                self.handleError(record)
