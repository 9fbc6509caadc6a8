"""What several tests of clusters share."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.db import connection, connections

from cronoq_django.routers import cluster
from cronoq_django.store.schema import create_schema

PREFIX = os.environ.get("PYTEST_XDIST_WORKER", "alone")


@contextmanager
def attached(schema: str) -> Iterator[str]:
    """An alias for a cluster, named as its schema."""
    connections.databases[schema] = cluster(connection.settings_dict, schema)
    try:
        connections[schema].connect()  # at once: test cases forbid aliases that connect later
        yield schema
    finally:
        connections[schema].close()
        del connections[schema]
        del connections.databases[schema]


def drop(schema: str) -> None:
    """Remove a schema, whatever it is."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def attach() -> Iterator[Callable[..., str]]:
    """Create a cluster and an alias for it; all gone afterwards."""
    with ExitStack() as stack:

        def make(name: str, *, create: bool = True) -> str:
            schema = f"{PREFIX}_{name}"
            if create:
                create_schema(schema)
            stack.callback(drop, schema)
            return stack.enter_context(attached(schema))

        yield make


@pytest.fixture(scope="module")
def _twins(django_db_setup: None, django_db_blocker: Any) -> Iterator[tuple[str, str]]:
    """Two clusters, made once for the tests of a file."""
    schemas = (f"{PREFIX}_twin_a", f"{PREFIX}_twin_b")
    with django_db_blocker.unblock():
        for schema in schemas:
            drop(schema)
            create_schema(schema)
    yield schemas
    with django_db_blocker.unblock():
        for schema in schemas:
            drop(schema)


@pytest.fixture
def twins(_twins: tuple[str, str], transactional_db: None) -> Iterator[tuple[str, str]]:
    """Aliases of two empty clusters in one database."""
    with ExitStack() as stack:
        for schema in _twins:
            with connection.cursor() as cursor:
                cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
                tables = ", ".join(f"{schema}.{name}" for (name,) in cursor.fetchall() if name != "django_migrations")
                cursor.execute(f"TRUNCATE {tables} RESTART IDENTITY; ALTER SEQUENCE {schema}.cronoq_claim RESTART")
            stack.enter_context(attached(schema))
        yield _twins
