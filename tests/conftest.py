"""What all tests share."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.errors import DuplicateDatabase, UniqueViolation

from cronoq_django import registry


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: Any) -> Iterator[None]:
    """One test database for all processes of a run, one schema in it for each."""
    from django.core.management import call_command
    from django.db import connection

    name = connection.settings_dict["NAME"]
    (schema,) = re.findall(r"search_path=(\w+)", connection.settings_dict["OPTIONS"]["options"])
    with django_db_blocker.unblock():
        _on_server(f'CREATE DATABASE "{name}"', unless=(DuplicateDatabase, UniqueViolation))
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
        call_command("migrate", verbosity=0)
    yield
    with django_db_blocker.unblock():
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA {schema} CASCADE")
        connection.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: begun last, a test of two minutes has the whole run wait for it."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The one that started the others drops the database, when they have ended."""
    from django.conf import settings

    if not hasattr(session.config, "workerinput"):
        name = settings.DATABASES["default"]["NAME"]
        _on_server(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', unless=())


def _on_server(statement: str, *, unless: tuple[type[Exception], ...]) -> None:
    """Execute a statement that no transaction may be around, from a database that is always there."""
    from django.db import connection

    params = connection.get_connection_params()
    wanted = {key: params[key] for key in ("host", "port", "user", "password") if params.get(key)}
    with psycopg.connect(**wanted, dbname="postgres", autocommit=True) as session, suppress(*unless):
        session.execute(statement)  # type: ignore[call-overload]


@pytest.fixture(scope="session", autouse=True)
def _tasks() -> None:
    """Leaders, workers and the admin import the `tasks` modules when they start; tests do here."""
    registry.autodiscover()


POLL = 0.02  # seconds between two looks


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """Wait for a fact, and fail when it is late: `wait_until(lambda: Run.objects.exists(), seconds=5)`; its value.

    A look and the pause after it count as a twentieth of a second at most: on a machine so busy that they take longer,
    the processes that are waited for come to as little, and the patience stretches with them (tenfold, no further).
    """

    def wait(fact: Callable[[], Any], *, seconds: float = 60, what: str = "") -> Any:
        waited, begun = 0.0, time.monotonic()
        while not (value := fact()):
            if waited > seconds or time.monotonic() - begun > 10 * seconds:
                pytest.fail(f"did not happen within {seconds} s: {what or fact}")
            looked_at = time.monotonic()
            time.sleep(POLL)
            waited += min(time.monotonic() - looked_at, 2.5 * POLL)
        return value

    return wait


@pytest.fixture
def leading(transactional_db: None) -> Iterator[Any]:
    """A fence of a real term on a real session, for running stages by hand."""
    from cronoq_django.leader.election import Election, Identity

    election = Election("default", Identity())
    fence = election.try_to_lead()
    assert fence is not None
    fence.election = election
    yield fence
    election.close()
