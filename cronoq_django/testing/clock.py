"""The clock of a test: it stands still until it is moved."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import connections
from django.utils import timezone

from cronoq_django.store import clock
from cronoq_django.store.session import alias_of


@contextmanager
def freeze(at: datetime | str) -> Iterator[None]:
    """Within this block it is `at`, an aware datetime or its ISO text, for all that we do in this process.

    >>> with freeze("2025-03-09T06:59:30Z"):
    ...     advance(timedelta(minutes=1))
    ...     run_pending()  # fires what was due at 07:00

    What the tests and tasks themselves read of the time is theirs. Raises ValueError for a naive datetime.
    """
    before = clock.frozen
    _set(datetime.fromisoformat(at) if isinstance(at, str) else at)
    try:
        yield
    finally:
        _set(before)


def advance(by: timedelta) -> datetime:
    """Move the frozen clock; what it shows now. Raises RuntimeError if it is not frozen."""
    if clock.frozen is None:
        raise RuntimeError("advance() moves a clock that freeze() has stopped")
    _set(clock.frozen + by)
    return clock.frozen


def _set(moment: datetime | None) -> None:
    if moment is not None and timezone.is_naive(moment):
        raise ValueError(f"freeze takes an aware datetime, not {moment!r}")
    clock.frozen = moment
    # Triggers date changes of jobs by it.
    with connections[alias_of(None)].cursor() as cursor:
        cursor.execute("SELECT set_config('cronoq.now', %s, false)", [moment.isoformat() if moment else ""])
