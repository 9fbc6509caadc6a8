"""Django's connections in a worker: what a task does with them must not hurt the next one, or the server.

A thread keeps its connection from task to task, or opens one for each, as CONN_MAX_AGE says; in between its session is
made as new. A task's own threads (`sync_to_async(…, thread_sensitive=False)`, or a pool) have connections, too, and
leave them to the garbage collector, which comes late: with ten such tasks at a time there were 96.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

logger = logging.getLogger("cronoq.worker")

_opened: list[tuple[threading.Thread, Any]] = []  # by whom; those that have been closed go at the next sweep
_lock = threading.Lock()


def watch_connections() -> None:
    """Note what is opened in this process from now on, in any thread."""
    connection_created.connect(_note)


def reopen_connections() -> None:
    """See to the thread's connections before a task: what is too old for another one goes."""
    _keep(_is_usable)


def clear_connections() -> None:
    """Leave the thread's connections as a task should find them: with a session as new, or not there."""
    _keep(_is_as_new)
    _sweep()


def _keep(may_stay: Callable[[Any], bool]) -> None:
    """Close the thread's other connections, and forget what Django knew of them: that a block was left open, say, in
    which one had been closed. Never raises: the run of a thread that did would be running for ever."""
    for connection in connections.all(initialized_only=True):
        try:
            connection.queries_log.clear()  # with DEBUG on, Django keeps the last 9,000
            if may_stay(connection):
                continue
        except Exception:
            logger.exception("A connection could not be kept for the next task.")
        _close(connection)
        del connections[connection.alias]


def _is_usable(connection: Any) -> bool:
    connection.close_if_unusable_or_obsolete()
    return connection.connection is not None


def _is_as_new(connection: Any) -> bool:
    """Whether it is open, and the session nobody's: nothing is set, held, listened to or prepared in it any more."""
    raw = connection.connection
    if raw is None or connection.in_atomic_block or not connection.autocommit:
        return False
    if connection.vendor == "postgresql":
        if raw.info.transaction_status != TransactionStatus.IDLE:
            return False
        with connection.cursor() as cursor:
            cursor.execute("DISCARD ALL")
        connection.init_connection_state()
        if getattr(connection, "pool", None):  # it sees to that when it connects, and gets this one back as it is
            connection._configure_connection(raw)
    return _is_usable(connection)


def _close(connection: Any) -> None:
    for opened in (connection.connection, connection):  # Django's only notes it in a block, but a pool must hear of it
        with suppress(Exception):
            opened.close()


def _note(*, connection: Any, **_: Any) -> None:
    with _lock:
        _opened.append((threading.current_thread(), connection))


def _sweep() -> None:
    """Close what threads that have ended left open."""
    with _lock:
        left = [connection for thread, connection in _opened if not thread.is_alive()]
        _opened[:] = [(thread, one) for thread, one in _opened if thread.is_alive() and one.connection is not None]
    for connection in left:
        connection.inc_thread_sharing()  # nobody else can have it any more
        _close(connection)
