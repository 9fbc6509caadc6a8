"""Task: Django's Task with our options. Works alike on Django 5.2, 6.0 and 6.1."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self

from django.utils import timezone

from cronoq_django import registry
from cronoq_django.compat import DjangoTask, InvalidTask
from cronoq_django.schedules import Backoff

MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(DjangoTask):
    """A task function with its defaults. `using()` gives a copy with others; `enqueue()` makes a run of it.

    script        the name that rows carry; by default module and qualified name
    max_attempts  all attempts counted, also those lost with their worker (1: never again)
    timeout       an attempt that takes longer is ended as timed out
    backoff       the delays between attempts
    """

    script: str = ""
    max_attempts: int = MAX_ATTEMPTS
    timeout: timedelta | None = None
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        DjangoTask.__post_init__(self)  # not super(): a dataclass with slots is another class than the one written here
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int) or self.max_attempts < 1:
            raise InvalidTask("max_attempts must be a whole number, at least 1.")
        if self.timeout is not None and self.timeout <= timedelta():
            raise InvalidTask("timeout must be longer than nothing.")

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        timeout: float | timedelta | None = None,
        backoff: Backoff | None = None,
    ) -> Self:
        """A copy with other options. `run_after`: an aware datetime or a timedelta; `timeout`: seconds or one."""
        if isinstance(run_after, timedelta):
            run_after = timezone.now() + run_after
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "max_attempts": max_attempts,
            "timeout": duration(timeout),
            "backoff": backoff,
        }
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    @property
    def script_name(self) -> str:
        """The name that rows carry for this task."""
        return registry.script_name(self)


def duration(value: float | timedelta | None) -> timedelta | None:
    """Seconds or a timedelta, as a timedelta."""
    return timedelta(seconds=value) if isinstance(value, int | float) else value
