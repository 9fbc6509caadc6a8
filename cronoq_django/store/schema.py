"""Schemas: clusters to create, list and drop. Each is one PostgreSQL schema and shares nothing with another.

Creating needs the right to; attaching does not: a role that may use the schema, its tables, sequences and functions is
enough for leaders and workers.
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql

from cronoq_django.errors import NotFound, NotOurs, Unavailable, translated
from cronoq_django.routers import cluster, valid
from cronoq_django.store.session import Session, alias_of, connect, transaction
from cronoq_django.store.statements import run

PATIENCE = 60.0  # seconds to wait for somebody who creates or drops the same schema


def create_schema(name: str, *, using: str | None = None) -> bool:
    """Create a cluster's schema in the database of an alias, with our tables up to date; whether it was not there.

    Safe to call again, and by several processes at once. Raises ValueError for a bad name, NotOurs for a schema that
    holds somebody else's tables.
    """
    alias = alias_of(using)
    with _alone(alias, valid(name)) as session:
        fresh = not _exists(session, name)
        if strangers := _strangers(session, name):
            raise NotOurs(f"the schema {name!r} holds {strangers[0]!r}, which is not ours: choose another name")
        with transaction(session) as cursor:
            cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name)))
        _migrate(alias, name)
    return fresh


def drop_schema(name: str, *, using: str | None = None) -> None:
    """Drop a cluster with all its rows. Raises NotFound, NotOurs (also while a leader leads it)."""
    with _alone(alias_of(using), valid(name)) as session:
        if name not in _clusters(session):
            there = _exists(session, name)
            raise NotOurs(f"{name!r} is no cluster of ours") if there else NotFound(f"there is no schema {name!r}")
        if strangers := _strangers(session, name):
            raise NotOurs(f"the schema {name!r} also holds {strangers[0]!r}, which is not ours: remove that first")
        with transaction(session) as cursor:
            if run(cursor, "lock_holders", schema=name):
                raise NotOurs(f"a leader leads the cluster {name!r}: stop it first")
            cursor.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def list_schemas(*, using: str | None = None) -> list[str]:
    """The schemas in the database of an alias that hold a cluster, by name."""
    with connections[alias_of(using)].cursor() as cursor:
        return [row[0] for row in run(cursor, "list_schemas")]


def _clusters(session: Session) -> list[str]:
    with transaction(session) as cursor:
        return [row[0] for row in run(cursor, "list_schemas")]


def _exists(session: Session, name: str) -> bool:
    with transaction(session) as cursor:
        cursor.execute("SELECT to_regnamespace(%s) IS NOT NULL", (name,))
        row = cursor.fetchone()
        return bool(row and row[0])


def _strangers(session: Session, name: str) -> list[str]:
    """What the schema holds that we did not make."""
    with transaction(session) as cursor:
        return [row[0] for row in run(cursor, "schema_strangers", schema=name)]


@contextmanager
def _alone(alias: str, name: str) -> Iterator[Session]:
    """A session beside which no other creates or drops this schema. Tries: a statement that waits pins the horizon."""
    key = int.from_bytes(hashlib.sha256(f"cronoq schema:{name}".encode()).digest()[:8], signed=True)
    session = connect(alias, name="cronoq schema", settings={"lock_timeout": "10s"})
    try:
        give_up_at = time.monotonic() + PATIENCE
        with translated():
            while session.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchone() != (True,):
                if time.monotonic() > give_up_at:
                    raise Unavailable(f"somebody else has been creating or dropping {name!r} for {PATIENCE:.0f} s")
                time.sleep(0.05)
        yield session
    finally:
        session.close()


def _migrate(alias: str, name: str) -> None:
    """Our app's own migrations, on a path of exactly that schema."""
    temporary = f"cronoq schema {name}"
    connections.databases[temporary] = cluster(connections[alias].settings_dict, name)
    try:
        connections[temporary].connect()  # at once: test cases forbid aliases that connect later
        executor = MigrationExecutor(connections[temporary])
        executor.migrate([key for key in executor.loader.graph.leaf_nodes() if key[0] == "cronoq"])
    finally:
        connections[temporary].close()
        del connections[temporary]
        del connections.databases[temporary]
