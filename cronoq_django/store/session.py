"""Dedicated psycopg sessions, for leaders and workers.

Not Django's connections: those are closed and reopened as Django sees fit, and an advisory lock, a LISTEN or a setting
would silently be gone. The parameters are the alias's own.

A pooler in transaction mode hands a session from backend to backend, which makes locks, LISTEN and settings mean
nothing, or worse: a setting would stay with a connection that others get. Such a session is recognized and left bare.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Self

import psycopg
from django.db import connections
from psycopg import sql

from cronoq_django.conf import conf
from cronoq_django.errors import translated
from cronoq_django.store.watchdog import Watchdog

logger = logging.getLogger("cronoq")

Row = tuple[Any, ...]
PATIENT_CONNECT = 5  # seconds: whoever is watched must not be held up longer by a server that can't be reached
PROOFS = 3  # rounds: a pooler that hands its backends out in turn shows in the second at the latest


class _Cursor(psycopg.Cursor[Row]):
    """Tells the session's watchdog of each answer."""

    def execute(self, *args: Any, **kwargs: Any) -> Self:
        asked_at = time.monotonic()
        super().execute(*args, **kwargs)
        if isinstance(self.connection, Session):
            self.connection.answered(asked_at)
        return self


class Session(psycopg.Connection[Row]):
    """A connection of ours, in autocommit and READ COMMITTED, whose parameters are known."""

    is_pooled = False  # only known of sessions that were given settings
    watchdog: Watchdog | None = None
    reopen: Callable[[], "Session"]  # another one like it

    @classmethod
    def open(cls, params: Mapping[str, Any], patience: Callable[[], float] | None) -> "Session":
        """One that a watchdog with this patience watches."""
        session = cls.connect(**params, autocommit=True, prepare_threshold=None, cursor_factory=_Cursor)
        session.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        session.reopen = lambda: cls.open(params, patience)
        if patience is not None:
            session.watchdog = Watchdog(session.fileno(), patience)
        return session

    def answered(self, asked_at: float) -> None:
        """The server answered what it was asked at `asked_at` (monotonic)."""
        if self.watchdog is not None:
            self.watchdog.answered(asked_at)

    def close(self) -> None:
        """End the session, and all that it holds."""
        if self.watchdog is not None:
            self.watchdog.end()
        super().close()


def connect(
    alias: str,
    *,
    name: str,
    dsn: str = "",
    settings: Mapping[str, str] | None = None,
    patience: Callable[[], float] | None = None,
) -> Session:
    """Open a session to the cluster of a database alias. Raises Unavailable.

    `name` is shown as application_name; `dsn` replaces the alias's parameters; `settings` are set for the session,
    unless a pooler hands it around (then `is_pooled`); `patience` is a watchdog's.
    """
    wrapper = connections[alias]
    params: dict[str, Any] = {"conninfo": dsn} if dsn else dict(wrapper.get_connection_params())
    for django_only in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(django_only, None)
    params["application_name"] = name
    if patience is not None:
        params["connect_timeout"] = PATIENT_CONNECT
    params.setdefault("connect_timeout", 10)
    with translated():
        session = Session.open(params, patience)
        try:
            if role := wrapper.settings_dict["OPTIONS"].get("assume_role"):
                session.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            # Clusters share a database: pg_stat_activity should say which of them a session works for.
            session.execute(
                "SELECT set_config('TimeZone', 'UTC', false), "
                "set_config('application_name', %s || coalesce(' in ' || current_schema(), ''), false)",
                (name,),
            )
            if settings is not None:
                _settle(session, settings)
        except BaseException:
            session.close()
            raise
    return session


def _settle(session: Session, settings: Mapping[str, str]) -> None:
    session.is_pooled = changes_backend(session)
    if session.is_pooled:
        return
    session.prepare_threshold = 5
    for setting, value in settings.items():
        try:
            session.execute("SELECT set_config(%s, %s, false)", (setting, value))
        except psycopg.errors.InvalidParameterValue:
            # Not to be had on the server's platform; any other setting is, whatever the platform.
            if setting != "client_connection_check_interval":
                raise


def changes_backend(session: Session) -> bool:
    """Whether a pooler gives this session another backend when somebody else is served. Raises Unavailable.

    The backend must stay the same while a second session has a transaction open, and the one after that. (With nobody
    else there, a pooler hands the same backend out every time: an idle one passed 250 transactions.)
    """
    backend = _backend(session)
    with translated(), session.reopen() as another:
        for _ in range(PROOFS):
            with transaction(another) as cursor:
                cursor.execute("SELECT 1")
                if _backend(session) != backend:
                    return True
    return False


def _backend(session: Session) -> int:
    with transaction(session) as cursor:
        return int(cursor.execute("SELECT pg_backend_pid()").fetchall()[0][0])


def milliseconds(duration: timedelta) -> str:
    """A duration as PostgreSQL's settings take it."""
    return f"{max(1, round(duration.total_seconds() * 1000))}ms"


def listen(session: Session, *purposes: str) -> None:
    """LISTEN on the cluster's channels for these purposes ('leader', 'pool:mail'). Raises Unavailable.

    Through a pooler nothing would arrive, and some backend would go on listening: then it does nothing.
    """
    if session.is_pooled:
        logger.info("A pooler hands our connection around, so nothing can notify us: looking for work by polling.")
        return
    with translated():
        for purpose in purposes:
            row = session.execute("SELECT cronoq_channel(current_schema(), %s)", (purpose,)).fetchone()
            assert row is not None  # noqa: S101  (a SELECT without FROM has one row)
            session.execute(sql.SQL("LISTEN {}").format(sql.Identifier(row[0])))


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
    with translated(), session.transaction(), session.cursor() as cursor:
        yield cursor


def alias_of(using: str | None) -> str:
    """The database alias of the cluster: the given one, else CRONOQ["DATABASE"]."""
    return using or conf().database
