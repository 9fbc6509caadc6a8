"""Dedicated psycopg sessions, for leaders and workers.

Not Django's connections: those are closed and reopened as Django sees fit, and an advisory lock, a LISTEN or a setting
would silently be gone. The parameters are the alias's own.

A pooler in transaction mode hands a session from backend to backend, which makes locks, LISTEN and settings mean
nothing, or worse: they stay with a connection that others get. Such a session is recognized and left bare.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any, Self

import psycopg
from django.db import connections
from django.db import transaction as django_transaction
from psycopg import sql
from psycopg.pq import PipelineStatus, TransactionStatus

from cronoq_django.conf import conf
from cronoq_django.errors import Unavailable, translated
from cronoq_django.store.statements import send
from cronoq_django.store.watchdog import Watchdog

logger = logging.getLogger("cronoq")

Row = tuple[Any, ...]
CONNECT_TIMEOUT = 5  # seconds: a stop must not wait longer for a server that can't be reached
PROOFS = 20  # rounds: with other clients about, a busy pooler looks innocent in half of them
PROOF_PATIENCE = 1.0  # seconds: a pool with room for one lets the second session wait for the first
FORMATS = {"TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "postgres"}  # what we read back
# A prepared statement's plan outlives a quiet night: made for a handful of rows, it went through all of 20,000 with
# each completion, 36 ms instead of 5, until the next ANALYZE. (What is forbidden is so dear that JIT would compile it.)
PLANS = {"enable_seqscan": "off", "jit": "off"}


class _Cursor(psycopg.Cursor[Row]):
    """Tells the session's watchdog of what is asked and answered."""

    def execute(self, *args: Any, **kwargs: Any) -> Self:
        assert isinstance(self.connection, Session)  # noqa: S101  (made by it)
        if self.connection.info.pipeline_status != PipelineStatus.OFF:
            return super().execute(*args, **kwargs)  # nothing is waited for here; `pipeline` tells the watchdog
        with self.connection.asking():
            super().execute(*args, **kwargs)
        return self


class Session(psycopg.Connection[Row]):
    """A connection of ours, in autocommit and READ COMMITTED, under the eyes of a watchdog."""

    params: Mapping[str, Any]
    watchdog: Watchdog
    own: dict[str, str]  # settings that each session of ours has
    is_pooled = False  # whether its backend is not the one that it was connected to

    @classmethod
    def open(cls, params: Mapping[str, Any], patience: Callable[[], float]) -> Self:
        """Connect. Raises what psycopg raises."""
        session = cls.connect(**params, autocommit=True, prepare_threshold=None, cursor_factory=_Cursor)
        session.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        session.params = params
        session.watchdog = Watchdog(session.fileno(), patience)
        return session

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The server owes an answer until this is over, or until the end of the transaction that it is a part of."""
        self.watchdog.asked_at = asked_at = time.monotonic()
        try:
            yield
        finally:
            in_transaction = self.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.ACTIVE)
            self.watchdog.asked_at = time.monotonic() if in_transaction else None
        self.watchdog.answered_at = asked_at

    def settle(self, settings: Mapping[str, str]) -> None:
        """Make our own and these settings for the session, whose backend is its own. Raises what psycopg raises."""
        self.prepare_threshold = 5
        for setting, value in {**self.own, **settings}.items():
            try:
                self.execute("SELECT set_config(%s, %s, false)", (setting, value))
            except psycopg.errors.InvalidParameterValue:
                # Not to be had on the server's platform; any other setting is, whatever the platform.
                if setting != "client_connection_check_interval":
                    raise

    def close(self) -> None:
        """End the session, and all that it holds."""
        self.watchdog.end()
        super().close()


def connect(
    alias: str,
    *,
    name: str,
    dsn: str = "",
    settings: Mapping[str, str] | None = None,
    patience: Callable[[], float] = lambda: float("inf"),
) -> Session:
    """Open a session to the cluster of a database alias. Raises Unavailable.

    `name` is shown as application_name; `dsn` replaces the alias's parameters; `settings` are set for the session,
    unless a pooler is in between (then `is_pooled`); `patience`: how many seconds an answer may take.
    """
    wrapper = connections[alias]
    params: dict[str, Any] = {"conninfo": dsn} if dsn else dict(wrapper.get_connection_params())
    for django_only in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(django_only, None)
    # A role's own client_encoding made one job with an ł in its name a reason to plan none.
    params |= {"application_name": name, "connect_timeout": CONNECT_TIMEOUT, "client_encoding": "UTF8"}
    with translated():
        session = Session.open(params, patience)
        try:
            # A pooler answers with a backend's number of its own making, or with that of another backend.
            session.is_pooled = session.info.backend_pid != _backend(session.cursor())
            # Clusters share a database: pg_stat_activity should say which of them a session works for.
            schema = session.execute("SELECT ' in ' || current_schema()").fetchall()[0][0]
            role = wrapper.settings_dict["OPTIONS"].get("assume_role")
            session.own = {**FORMATS, **PLANS, "application_name": f"{name}{schema or ''}"}
            session.own |= {"role": role} if role else {}
            if not session.is_pooled:
                session.settle(settings or {})
        except BaseException:
            session.close()
            raise
    return session


def changes_backend(session: Session) -> bool:
    """Whether a pooler gives this session another backend when somebody else is served. Raises Unavailable.

    The backend must stay the same while a second session has a transaction open, and the one after that. (With nobody
    else there, a pooler hands the same backend out every time: an idle one passed 250 transactions.) True also if the
    pooler has no room for a second one, or lets nobody have a transaction.
    """
    session.watchdog.limit = PROOF_PATIENCE
    begun = time.monotonic()
    try:
        with translated(), closing(Session.open(session.params, lambda: PROOF_PATIENCE)) as another:
            backend = _backend(session.cursor())
            for _ in range(PROOFS):
                with transaction(another) as others:
                    others.execute("SELECT 1")
                    with transaction(session) as cursor:
                        if _backend(cursor) != backend:
                            return True
    except Unavailable as error:
        refused = isinstance(error.__cause__, psycopg.errors.ProtocolViolation)
        if not refused and time.monotonic() < begun + PROOF_PATIENCE:
            raise
        return True
    finally:
        session.watchdog.limit = float("inf")
    return False


def _backend(cursor: psycopg.Cursor[Row]) -> int:
    return int(cursor.execute("SELECT pg_backend_pid()").fetchall()[0][0])


def milliseconds(duration: timedelta) -> str:
    """A duration as PostgreSQL's settings take it."""
    return f"{max(1, round(duration.total_seconds() * 1000))}ms"


def listen(session: Session, *purposes: str) -> list[str]:
    """LISTEN on the cluster's channels for these purposes ('leader', 'pool:mail'); the channels. Raises Unavailable.

    Through a pooler nothing would arrive, and some backend would go on listening: then it does nothing.
    """
    if session.is_pooled:
        logger.info("A pooler hands our connection around, so nothing can notify us: looking for work by polling.")
        return []
    channels = []
    with translated():
        for purpose in purposes:
            row = session.execute("SELECT cronoq_channel(current_schema(), %s)", (purpose,)).fetchone()
            assert row is not None  # noqa: S101  (a SELECT without FROM has one row)
            session.execute(sql.SQL("LISTEN {}").format(sql.Identifier(row[0])))
            channels.append(row[0])
    return channels


def wait(session: Session, timeout: float) -> bool:
    """Sleep until a notification arrives or `timeout` seconds have passed; whether one did. Raises Unavailable."""
    with translated():
        notified = any(True for _ in session.notifies(timeout=timeout, stop_after=1))
        if notified:
            for _ in session.notifies(timeout=0):
                pass  # one wake-up for a burst
    return notified


@contextmanager
def transaction(session: Session) -> Iterator["psycopg.Cursor[Row]"]:
    """A READ COMMITTED transaction on a dedicated session; its cursor. Raises Unavailable."""
    with translated(), session.asking(), session.transaction(), session.cursor() as cursor:
        yield cursor


@contextmanager
def pipelined(session: Session) -> Iterator[Callable[..., Callable[[], list[Row]]]]:
    """A transaction whose statements go out together: each is asked by name, its rows are read later.

    >>> with pipelined(session) as ask:
    ...     completed, claimed = ask("complete_runs", …), ask("claim_runs", …)
    ...     completed(), claimed()  # one round trip for both

    Raises Unavailable.
    """

    def ask(name: str, /, **params: Any) -> Callable[[], list[Row]]:
        cursor = session.cursor()
        send(cursor, name, params)
        return cursor.fetchall

    with translated(), session.asking(), session.pipeline(), session.transaction():
        yield ask


def alias_of(using: str | None) -> str:
    """The database alias of the cluster: the given one, else CRONOQ["DATABASE"]."""
    return using or conf().database


@contextmanager
def on_alias(using: str | None) -> Iterator[Any]:
    """A transaction on Django's own connection to the cluster, READ COMMITTED; its cursor. If the caller has one open
    there, a part of that, as it is. Raises Unavailable."""
    connection = connections[alias_of(using)]
    is_outermost = not connection.in_atomic_block
    with translated(), django_transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        if is_outermost:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield cursor
