"""Dedicated psycopg sessions, for leaders and workers.

Not Django's connections: those are closed and reopened as Django sees fit, and an advisory lock, a LISTEN or a setting
would silently be gone. The parameters are the alias's own.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from django.db import connections
from psycopg import sql

from cronoq_django.conf import conf
from cronoq_django.errors import translated

Session = psycopg.Connection[tuple[Any, ...]]


def connect(alias: str, *, name: str, dsn: str = "", settings: Mapping[str, str] | None = None) -> Session:
    """Open a session to the cluster of a database alias, in autocommit. Raises Unavailable.

    `name` is shown as application_name; `dsn` replaces the alias's parameters; `settings` are set for the session.
    """
    wrapper = connections[alias]
    params: dict[str, Any] = {"conninfo": dsn} if dsn else dict(wrapper.get_connection_params())
    for django_only in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(django_only, None)
    params.setdefault("connect_timeout", 10)
    with translated():
        session = psycopg.connect(**params, autocommit=True, application_name=name)
        session.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        try:
            if role := wrapper.settings_dict["OPTIONS"].get("assume_role"):
                session.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            # Clusters share a database: pg_stat_activity should say which of them a session works for.
            session.execute(
                "SELECT set_config('application_name', %s || coalesce(' in ' || current_schema(), ''), false)", (name,)
            )
            for setting, value in {"TimeZone": "UTC", **(settings or {})}.items():
                session.execute("SELECT set_config(%s, %s, false)", (setting, value))
        except BaseException:
            session.close()
            raise
    return session


def milliseconds(duration: timedelta) -> str:
    """A duration as PostgreSQL's settings take it."""
    return f"{max(1, round(duration.total_seconds() * 1000))}ms"


def listen(session: Session, *purposes: str) -> None:
    """LISTEN on the cluster's channels for these purposes ('leader', 'pool:mail'). Raises Unavailable."""
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
def transaction(session: Session) -> Iterator["psycopg.Cursor[tuple[Any, ...]]"]:
    """A READ COMMITTED transaction on a dedicated session; its cursor. Raises Unavailable."""
    with translated(), session.transaction(), session.cursor() as cursor:
        yield cursor


def alias_of(using: str | None) -> str:
    """The database alias of the cluster: the given one, else CRONOQ["DATABASE"]."""
    return using or conf().database
