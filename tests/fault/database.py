"""A database of one test's own, on a server where nobody else has a deadlock."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cronoq_django.store.session import Session, connect, transaction

from .server import OwnServer

Work = Callable[[Any], Any]  # of a transaction, on its cursor


class Database:
    """It, and the sessions to it."""

    def __init__(self, server: OwnServer) -> None:
        self.server = server
        self._sessions: list[Session] = []

    def session(self, name: str, *, settings: dict[str, str] | None = None) -> Session:
        session = connect("default", name=name, dsn=self.server.app_dsn, settings=settings)
        self._sessions.append(session)
        return session

    def deadlocks(self) -> int:
        """How many the server has counted, once all sessions of the test have ended: it is told at their end."""
        while self._sessions:
            self._sessions.pop().close()
        while self.server.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'"):
            time.sleep(0.01)
        return int(self.server.value("SELECT deadlocks FROM pg_stat_database WHERE datname = 'app'"))


@contextmanager
def made_anew(server: OwnServer) -> Iterator[Database]:
    server.remake()
    database = Database(server)
    yield database
    database.deadlocks()


def in_transaction(session: Session, work: Work) -> Any:
    with transaction(session) as cursor:
        return work(cursor)
