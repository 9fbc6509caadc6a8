"""The clock of a test: it stands still until it is moved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.utils import timezone
from psycopg.pq import TransactionStatus

from cronoq_django.store import clock
from cronoq_django.store.session import alias_of

SET_NOW = "SELECT set_config('cronoq.now', %s, false)"


@contextmanager
def freeze(at: datetime | str) -> Iterator[None]:
    """Within this block it is `at`, an aware datetime or its ISO text, for all that we do in this process.

    >>> with freeze("2025-03-09T06:59:30Z"):
    ...     advance(timedelta(minutes=1))
    ...     run_pending()  # fires what was due at 07:00

    What the tests and tasks themselves read of the time is theirs. Raises ValueError for a naive datetime.
    """
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    if timezone.is_naive(moment):
        raise ValueError(f"freeze takes an aware datetime, not {moment!r}")
    before, clock.frozen = clock.frozen, moment
    try:
        with connections[alias_of(None)].execute_wrapper(_date_changes):
            yield
    finally:
        clock.frozen = before


def advance(by: timedelta) -> datetime:
    """Move the frozen clock; what it shows now. Raises RuntimeError if it is not frozen."""
    if clock.frozen is None:
        raise RuntimeError("advance() moves a clock that freeze() has stopped")
    clock.frozen += by
    return clock.frozen


def _date_changes(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """A trigger dates changes of jobs: it is told the time for each statement, so that none is left in the session."""
    if "cronoq_job" not in str(sql) or clock.frozen is None:
        return execute(sql, params, many, context)
    session = context["connection"].connection
    session.execute(SET_NOW, [clock.frozen.isoformat()])
    try:
        return execute(sql, params, many, context)
    finally:
        if session.info.transaction_status != TransactionStatus.INERROR:  # which undoes it
            session.execute(SET_NOW, [""])
