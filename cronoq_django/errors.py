"""Every error of ours, and which of PostgreSQL's mean "try again".

`Unavailable` is weather: the database is away, starting, read-only, too busy, or asked us to repeat. The process stays
up and retries. `Fenced` is the end of a term: another leader took over. What is neither is a bug and surfaces.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import django.db
import psycopg
from psycopg import errors as pg

LONGEST_DELAY = timedelta(days=36_525)


class CronoqError(Exception):
    """The root of our errors."""


class Unavailable(CronoqError):  # noqa: N818  (the word of the design)
    """The database can't do this now; the same call may succeed later. Nothing is known to have been written."""


class Fenced(CronoqError):  # noqa: N818
    """Another leader took over: this one's transaction was rolled back and it must step down."""


class CannotLead(CronoqError):  # noqa: N818
    """Nobody can lead over this way to the database: it goes through a pooler, or to another cluster."""


class NotFound(CronoqError):  # noqa: N818
    """No such job or run in this cluster."""


class NotOurs(CronoqError):  # noqa: N818
    """A schema that is not a cluster of ours, or is in use: it was left as it is."""


class Quarantined(CronoqError):  # noqa: N818
    """A row can't be decoded: unknown script, arguments that don't bind or aren't what they should be."""


class Stale(CronoqError):  # noqa: N818
    """The claim is not the run's current one: the run has ended, waits again, or is another's. Nothing was written."""


class Duplicate(CronoqError):  # noqa: N818
    """A run with this key is there already, and the caller asked to be told: `run` is its id."""

    def __init__(self, key: str, run: UUID) -> None:
        super().__init__(f"the run {run} has the key {key!r}")
        self.key = key
        self.run = run


class Retry(Exception):  # noqa: N818
    """Raised by a task: end this attempt as failed and try again `after` a delay, if attempts are left.

    >>> raise Retry("the mail server is busy", after=timedelta(minutes=5))

    Without `after` (seconds or timedelta) the task's backoff says when.
    """

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason or "the task asked to be retried")
        self.after = None if after is None else _delay("Retry(after=…)", after)


class Snooze(Exception):  # noqa: N818
    """Raised by a task: not now, run again in `for_` (seconds or timedelta). The attempt is not counted."""

    def __init__(self, for_: float | timedelta) -> None:
        self.for_ = _delay("Snooze(for_=…)", for_)
        super().__init__(f"snoozed for {self.for_}")


class Discard(Exception):  # noqa: N818
    """Raised by a task: this run makes no sense (any more). It ends failed, reason `discarded`, and is not retried."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the task discarded this run")


def _delay(what: str, value: float | timedelta) -> timedelta:
    delay = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if not timedelta() <= delay <= LONGEST_DELAY:
        raise ValueError(f"{what} takes from nothing to {LONGEST_DELAY.days:,} days, not {value!r}")
    return delay


# Connection trouble (08), resources (53), operator intervention: shutdown, start-up, cancelled statements (57), system
# errors (58); and single states: repeatable transactions, lock and idle timeouts, a server that became a standby.
_UNAVAILABLE_CLASSES = ("08", "53", "57", "58")
_UNAVAILABLE_STATES = {
    "40001",  # serialization failure
    "40P01",  # deadlock
    "55P03",  # lock not available
    "25P03",  # idle in transaction timeout
    "25P04",  # transaction timeout
    "25006",  # read-only after a failover
}


def is_unavailable(error: BaseException) -> bool:
    """Whether `error` (psycopg's, or Django's around one) says that the database can't serve us now."""
    if isinstance(error, Unavailable):
        return True
    if isinstance(error, django.db.Error) and error.__cause__ is not None:
        return is_unavailable(error.__cause__)
    if isinstance(error, psycopg.Error):
        state = error.sqlstate
        if state is not None:
            return state[:2] in _UNAVAILABLE_CLASSES or state in _UNAVAILABLE_STATES
        # Without a state the error comes from the client: the connection broke, or can't be made.
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not isinstance(
            error, pg.ProgrammingError
        )
    return isinstance(error, django.db.OperationalError | django.db.InterfaceError | ConnectionError | TimeoutError)


@contextmanager
def translated() -> Iterator[None]:
    """Raise `Unavailable` for the errors that mean it; let everything else through."""
    try:
        yield
    except CronoqError:
        raise
    except Exception as error:
        if is_unavailable(error):
            raise Unavailable(str(error).strip() or type(error).__name__) from error
        raise
