"""PgBouncer in front of the own server, in whichever pool mode."""

import os
import pwd
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from example_project.postgres.server import PORT

from .proxy import moved
from .server import OwnServer

INI = """
[databases]
app = host={socket} port={server_port} dbname=app user=app

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
{more}
"""


class PgBouncer:
    """A pooler that trusts whoever comes, and a URL through it."""

    def __init__(
        self, program: str, server: OwnServer, folder: Path, *, mode: str = "transaction", size: int = 5, more: str = ""
    ) -> None:
        self.size = size
        self._log = folder / "pgbouncer.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        ini = folder / "pgbouncer.ini"
        ini.write_text(
            INI.format(socket=server.socket_folder, server_port=PORT, port=self.port, mode=mode, size=size, more=more)
        )
        command = [program, "-q", str(ini)]
        if os.geteuid() == 0:  # it refuses to be root; the server's user is the one that may open its socket
            command[1:1] = ["-u", pwd.getpwuid(server.account["user"]).pw_name]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._server = server
        self._await()

    @property
    def url(self) -> str:
        """The DATABASE_URL of the database through it."""
        return moved(self._server.app_url, "127.0.0.1", self.port)

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """A client in autocommit."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="app", dbname="app", autocommit=True, prepare_threshold=None
        )

    def on_each_backend(self, sql: str) -> list[tuple[Any, ...]]:
        """What a query gives on each of the pool's connections to the server: as many clients hold them all at once."""
        with ExitStack() as stack:
            clients = [stack.enter_context(self.connect()) for _ in range(self.size)]
            for client in clients:
                client.execute("BEGIN")
            return [row for client in clients for row in client.execute(sql).fetchall()]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _await(self) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(self._log.read_text()) from None
                time.sleep(0.02)
            else:
                return


class Crowd:
    """Other clients of a pooler: two hold a transaction open, the others come and go, each with short transactions."""

    def __init__(self, pooler: PgBouncer, visitors: int = 4) -> None:
        self._pooler = pooler
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._hold, daemon=True) for _ in range(2)]
        self._threads += [threading.Thread(target=self._visit, args=(n,), daemon=True) for n in range(visitors)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _hold(self) -> None:
        with self._pooler.connect() as client, client.transaction():
            client.execute("SELECT 1")
            self._ended.wait()

    def _visit(self, number: int) -> None:
        while not self._ended.is_set():
            with suppress(psycopg.OperationalError), self._pooler.connect() as client:
                for _ in range(3):
                    client.execute("SELECT pg_sleep(%s)", [0.005 * (number + 1)])


@pytest.fixture
def pgbouncer(server: OwnServer, tmp_path: Path) -> Iterator[Callable[..., PgBouncer]]:
    """Starts one: `pgbouncer(mode="session")`."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    with ExitStack() as stack:

        def start(**options: Any) -> PgBouncer:
            pooler = PgBouncer(program, server, tmp_path, **options)
            stack.callback(pooler.stop)
            return pooler

        yield start
