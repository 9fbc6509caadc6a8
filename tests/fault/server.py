"""A PostgreSQL of one test module's own, to be stopped, restarted, filled up, or set up badly for everybody.

Its processes use the role and the database `app`; the database is made anew for each test, tables and all. The tests
themselves use the superuser, who gets in when nobody else does.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
import pytest

from example_project.postgres import NoPostgres, PrivatePostgres
from example_project.postgres.server import PORT

ROOT = Path(__file__).resolve().parents[2]


Server = TypeVar("Server", bound="OwnServer")


class OwnServer(PrivatePostgres):
    """`start()` also starts it again after `stop()`, with the options it had."""

    @property
    def app_url(self) -> str:
        """The DATABASE_URL for processes."""
        return self.url_of("app")

    @property
    def app_dsn(self) -> str:
        """The same for psycopg."""
        return f"host='{self.socket_folder}' port={PORT} user=app dbname=app"

    def url_of(self, database: str) -> str:
        return f"postgres://app@:{PORT}/{database}?host={quote(str(self.socket_folder))}"

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is a crash: nobody is told, and the start that follows recovers."""
        self._pg_ctl("stop", mode)

    def restart(self, mode: str = "fast") -> None:
        self._pg_ctl("restart", mode)

    def _pg_ctl(self, action: str, mode: str) -> None:
        log = ["-l", "data/server.log"] if action == "restart" else []
        done = self._run("pg_ctl", action, "-w", "-s", "-D", "data", "-m", mode, *log)
        assert done.returncode == 0, done.stderr

    def query(self, sql: str, *params: Any, database: str = "app") -> list[tuple[Any, ...]]:
        """What the superuser gets for it, on a connection for it alone and without a transaction around it."""
        where = {"host": str(self.socket_folder), "port": PORT, "user": "postgres", "dbname": database}
        with psycopg.connect(**where, autocommit=True) as session:  # type: ignore[arg-type]
            answer = session.execute(sql, params or None)  # type: ignore[call-overload]
            return answer.fetchall() if answer.description is not None else []

    def value(self, sql: str, *params: Any) -> Any:
        """The one value that a query gives."""
        return self.query(sql, *params)[0][0]

    def enqueue(self, script: str, *, args: str = "[]", pool: str = "default", max_attempts: int = 3) -> str:
        """A run, with the notification that goes with it; its id."""
        made = self.query(
            "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, pool, max_attempts, backoff) "
            "VALUES (gen_random_uuid(), 'enqueue', %s, %s, '{}', 'queued', %s, %s, '{\"first\": 0.5}') "
            "RETURNING id, pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), '0')",
            script,
            args,
            pool,
            max_attempts,
        )
        return str(made[0][0])

    def cut(self, who: str = "true") -> None:
        """End sessions of the database, all or those of which an expression holds, and wait until they are gone."""
        self.query(
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'app' AND ({who})",
            database="postgres",
        )

    def remake(self) -> None:
        """The database as `migrate` leaves it, and the role without settings."""
        self.query("ALTER ROLE app RESET ALL", database="postgres")
        self.query("DROP DATABASE IF EXISTS app WITH (FORCE)", database="postgres")
        self.query("CREATE DATABASE app TEMPLATE migrated OWNER app", database="postgres")

    def remove(self) -> None:
        """Let go of it, wait until the janitor has stopped it, and take its files away."""
        self.release()
        with (self.place / "janitor.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in {self.socket_folder, self.place, self.home}:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def provided(kind: type[Server]) -> Iterator[Server]:
    """A server with the role `app` and an empty database to copy. Skips the test where there is no PostgreSQL."""
    home = Path(tempfile.mkdtemp(prefix="cronoq-"))
    home.chmod(0o755)  # the server's user has to pass
    server = kind(home, durable=False)
    try:
        server.start()
    except NoPostgres as error:
        shutil.rmtree(home, ignore_errors=True)
        pytest.skip(f"no PostgreSQL to start: {error}")
    try:
        server.query("CREATE ROLE app LOGIN", database="postgres")
        server.query("CREATE DATABASE migrated OWNER app", database="postgres")
        migrate = subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
            cwd=ROOT,
            env={
                **os.environ,
                "DATABASE_URL": server.url_of("migrated"),
                "DJANGO_SETTINGS_MODULE": "tests.fault.settings",
            },
            check=False,
            capture_output=True,
            text=True,
        )
        assert migrate.returncode == 0, migrate.stderr
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="module")
def own_server() -> Iterator[OwnServer]:
    """The server itself, with an empty database to copy."""
    with provided(OwnServer) as server:
        yield server


@pytest.fixture
def server(own_server: OwnServer) -> OwnServer:
    """The server, running, with a new database `app`."""
    own_server.start()
    own_server.remake()
    return own_server
