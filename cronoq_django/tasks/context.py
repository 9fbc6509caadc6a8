"""What a running task can ask about its run."""

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run that this code executes: `attempt` counts from 1, `scheduled_for` is the slot (aware UTC) or None."""

    id: UUID
    script: str
    attempt: int
    job_name: str = ""
    scheduled_for: datetime | None = None
    root: UUID | None = None


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
