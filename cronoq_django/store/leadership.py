"""Leadership: the lock, the epoch, and the only transaction in which a leader can write.

Functions that only a leader may call take a `FencedTransaction`; there is no other way to get one than `fenced`, and
it begins by reading the epoch again, with a lock that a successor's take-over waits for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from cronoq_django.errors import Fenced
from cronoq_django.models.fields import dump_json
from cronoq_django.store.session import Session, transaction
from cronoq_django.store.statements import Cursor, count, run


@dataclass(frozen=True, slots=True)
class Term:
    """One leadership: its epoch, and a random id in case a lossy failover gives the same epoch out again."""

    epoch: int
    id: UUID


class FencedTransaction:
    """An open transaction whose leader is still the leader. Usable as a cursor until it ends."""

    __slots__ = ("_cursor", "now", "term")

    def __init__(self, cursor: Any, term: Term, now: datetime) -> None:
        self._cursor = cursor
        self.term = term
        self.now = now  # the database's clock, read after the fence was passed

    @classmethod
    @contextmanager
    def begin(cls, session: Session, term: Term) -> Iterator[Self]:
        """Open one. Raises Fenced if another leader took over, Unavailable if the session is lost."""
        with transaction(session) as cursor:
            rows = run(cursor, "fence", epoch=term.epoch, term=term.id)
            if not rows:
                raise Fenced(f"epoch {term.epoch} is over: another leader took over")
            yield cls(cursor, term, rows[0][0])

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What fails in here is undone alone."""
        with self._cursor.connection.transaction():
            yield

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return int(self._cursor.rowcount)

    def execute(self, query: Any, params: Any = None, /) -> Any:
        return self._cursor.execute(query, params)

    def fetchall(self) -> Any:
        return self._cursor.fetchall()


fenced = FencedTransaction.begin


def try_lock(session: Session) -> bool:
    """Try for the cluster's advisory lock on this session. Locks are re-entrant: ask only when it isn't held."""
    with transaction(session) as cursor:
        return bool(run(cursor, "advisory_lock")[0][0])


def unlock(session: Session) -> None:
    """Give the advisory lock back."""
    with transaction(session) as cursor:
        run(cursor, "advisory_unlock")


def take_over(session: Session, *, term: UUID, coordinator: UUID, host: str, ttl: timedelta) -> Term:
    """Begin a term, holding the lock: raise the epoch. Raises Unavailable if a predecessor is in the way."""
    with transaction(session) as cursor:
        rows = run(cursor, "take_over", term=term, coordinator=coordinator, host=host, ttl=ttl)
        return Term(int(rows[0][0]), term)


def open_term(tx: FencedTransaction, *, coordinator: UUID, host: str, recovered: dict[str, int]) -> None:
    """Write down the new term with what it recovered, and close the predecessor's if it could not."""
    run(
        tx,
        "open_term",
        term=tx.term.id,
        epoch=tx.term.epoch,
        coordinator=coordinator,
        host=host,
        recovered=dump_json(recovered),
        ended="replaced: it stopped without saying why",
    )


def close_term(tx: FencedTransaction, *, ended: str) -> None:
    """Say why the term ends, and wake the standbys."""
    run(tx, "close_term", term=tx.term.id, ended=ended)


def renew_term(tx: FencedTransaction) -> None:
    """The leader's heartbeat."""
    count(tx, "renew_term", epoch=tx.term.epoch, term=tx.term.id)


def record_stage(tx: FencedTransaction, *, name: str, duration: timedelta, rows: int, error: str) -> None:
    """Note how a stage's last run went."""
    count(tx, "record_stage", name=name, epoch=tx.term.epoch, duration=duration, rows=rows, error=error)


def register_coordinator(
    cursor: Cursor, *, coordinator: UUID, host: str, process_id: int, version: str, status: str, declares: list[str]
) -> datetime:
    """Register a leader-command process, or its heartbeat; when it first registered, by the database's clock."""
    rows = run(
        cursor,
        "upsert_coordinator",
        id=coordinator,
        host=host,
        process_id=process_id,
        version=version,
        status=status,
        declares=declares,
    )
    registered_at: datetime = rows[0][0]
    return registered_at
