"""Leadership: the lock, the epoch, and the only transaction in which a leader can write.

Functions that only a leader may call take a `FencedTransaction`; there is no other way to get one than to `begin` it,
and it begins by reading the epoch again, with a lock that a successor's take-over waits for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID, uuid4

from cronoq_django.errors import CannotLead, Fenced, translated
from cronoq_django.models.fields import TEXT_LIMIT, clean_text, dump_json
from cronoq_django.store.session import Session, changes_backend, transaction
from cronoq_django.store.statements import Cursor, count, run

POOLED = (
    "A leader can't work through a pooler in transaction mode, such as PgBouncer: its lock stays on one backend, and "
    "its work goes to others. Set CRONOQ['LEADER_DSN'] to an address of PostgreSQL itself, or use session mode."
)


@dataclass(frozen=True, slots=True)
class Term:
    """One leadership: its epoch, and a random id in case a lossy failover gives the same epoch out again."""

    epoch: int
    id: UUID


@dataclass(frozen=True, slots=True)
class Ended:
    """A term that ended, and why."""

    term: UUID | None = None
    why: str = ""


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
                raise Fenced(f"epoch {term.epoch} is over: {successor(cursor, term)}")
            yield cls(cursor, term, rows[0][0])

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What fails in here is undone alone. Raises Unavailable for the errors that mean it."""
        with translated(), self._cursor.connection.transaction():
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


def successor(cursor: Cursor, term: Term) -> str:
    """Who took over, in words."""
    rows = run(cursor, "who_leads")
    if not rows:
        return "the leader row is gone"
    epoch, host, id_ = rows[0]
    if (epoch, id_) == (term.epoch, term.id):
        return "the connection has another backend than the one with the lock, as behind a pooler"
    return f"{host} took over with epoch {epoch}"


def try_lock(session: Session) -> bool:
    """Try for the cluster's advisory lock on this session. Locks are re-entrant: ask only when it isn't held."""
    with transaction(session) as cursor:
        return bool(run(cursor, "advisory_lock")[0][0])


def unlock(session: Session, *, tell: bool = False) -> None:
    """Give the advisory lock back; `tell` the standbys, who come at once. (One that could not lead and told everybody,
    itself among them, tried again a thousand times a second.)"""
    with transaction(session) as cursor:
        run(cursor, "advisory_unlock", tell=tell)


def take_over(session: Session, *, coordinator: UUID, host: str, ttl: timedelta) -> Term:
    """Begin a term, holding the lock: raise the epoch.

    Raises CannotLead if the session is not one and the same backend, which holds the lock; Unavailable if somebody
    holds the leader row.
    """
    term = uuid4()
    if not (session.is_pooled and changes_backend(session)):
        with transaction(session) as cursor:
            rows = run(cursor, "take_over", term=term, coordinator=coordinator, host=host, ttl=ttl)
            if rows:
                return Term(int(rows[0][0]), term)
    raise CannotLead(POOLED)


def end_lost_leader(session: Session) -> list[tuple[int, str, bool]]:
    """End the session of the recorded leader if it has had no heartbeat for longer than its TTL: backend, host,
    whether that could be done."""
    with transaction(session) as cursor:
        return [(row[0], row[1], row[2]) for row in run(cursor, "end_lost_leader")]


def cluster_of(cursor: Cursor) -> tuple[str, str, int]:
    """The schema of a connection's cluster as search_path takes it, its database, and the number of its server."""
    schema, database, system = run(cursor, "cluster_of")[0]
    return str(schema or ""), str(database), int(system)


def row_holders(session: Session) -> list[str]:
    """Who else has locks on the leader row or its table, in words."""
    with transaction(session) as cursor:
        return [f"{name} (process {pid}, since {since})" for pid, name, since in run(cursor, "row_holders")]


def open_term(tx: FencedTransaction, *, coordinator: UUID, host: str, recovered: dict[str, int], last: Ended) -> None:
    """Write down the new term with what it recovered, and close those that could not say why they ended.

    `last`: the term of this process before, whose end it has not been able to write.
    """
    run(
        tx,
        "open_term",
        term=tx.term.id,
        epoch=tx.term.epoch,
        coordinator=coordinator,
        host=host,
        recovered=dump_json(recovered),
        ended="replaced: it stopped without saying why",
        last=last.term,
        last_ended=clean_text(last.why, 500),
    )


def note_recovery(tx: FencedTransaction, recovered: dict[str, int]) -> None:
    """Keep on the term what it has recovered by now."""
    count(tx, "note_recovery", term=tx.term.id, recovered=dump_json(recovered))


def close_term(tx: FencedTransaction, *, ended: str) -> None:
    """Say why the term ends."""
    count(tx, "close_term", term=tx.term.id, ended=ended)


def renew_term(tx: FencedTransaction) -> None:
    """The leader's heartbeat."""
    count(tx, "renew_term", epoch=tx.term.epoch, term=tx.term.id)


def record_stage(tx: FencedTransaction, *, name: str, duration: timedelta, rows: int, error: str) -> None:
    """Note how a stage's last run went."""
    error = clean_text(error, TEXT_LIMIT)
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
