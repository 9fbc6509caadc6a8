"""Which errors mean "try again", and which are bugs."""

import django.db
import psycopg
import pytest
from psycopg import errors as pg

from cronoq_django.errors import Fenced, Unavailable, is_unavailable, translated


@pytest.mark.parametrize(
    "error",
    [
        pg.AdminShutdown(),
        pg.CannotConnectNow(),
        pg.SerializationFailure(),
        pg.DeadlockDetected(),
        pg.LockNotAvailable(),
        pg.QueryCanceled(),
        pg.TooManyConnections(),
        pg.ReadOnlySqlTransaction(),
        pg.IdleInTransactionSessionTimeout(),
        pg.DiskFull(),
        psycopg.OperationalError("connection refused"),
        psycopg.InterfaceError("the connection is closed"),
        ConnectionResetError(),
        TimeoutError(),
    ],
)
def test_weather(error: Exception) -> None:
    assert is_unavailable(error)
    wrapped = django.db.OperationalError()
    wrapped.__cause__ = error
    assert is_unavailable(wrapped)
    with pytest.raises(Unavailable), translated():
        raise error


@pytest.mark.parametrize(
    "error", [pg.UndefinedTable(), pg.UniqueViolation(), pg.SyntaxError(), psycopg.ProgrammingError(), KeyError()]
)
def test_bugs(error: Exception) -> None:
    assert not is_unavailable(error)
    with pytest.raises(type(error)), translated():
        raise error


def test_being_fenced_is_neither() -> None:
    with pytest.raises(Fenced), translated():
        raise Fenced
