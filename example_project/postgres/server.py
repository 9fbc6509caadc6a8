"""The private server: started by its first user, joined by the others, stopped after the last.

All of it lives in one folder for each major version below `home`: the data, the server's log, and three lock files.

    start.lock     exclusive, while a process looks after the server: one at a time
    users.lock     shared, held by each process that uses the server, for as long as it lives
    janitor.lock   exclusive, held by the janitor: a detached process that waits to get users.lock exclusively, which
                   is when the last user is gone, however it went; then it stops the server and ends

Locks belong to the kernel, so a process that was killed leaves none behind. Newcomers wait at users.lock while the
janitor stops the server, then start it again.

The server listens on a Unix socket alone, which only its own user (and root) can open, and trusts whoever can. What
the server's user can't reach, because the checkout is below root's home, is kept in /var/tmp; a socket whose path would
be too long or too odd is put in /tmp. No mode of a folder that isn't ours is changed.
"""

import errno
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import quote

from example_project.postgres import janitor
from example_project.postgres.binaries import NoPostgres, copied_wheel, find_binaries, server_account, version_of

PORT = 5432  # only names the socket
SOCKET_PATH_BYTES = 103  # the limit of macOS; Linux has 107
START_SECONDS = 10
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PrivatePostgres:
    """One server, shared by all processes that start it with the same `home`. The first one's `durable` counts."""

    url: str  # a DATABASE_URL, once started

    def __init__(self, home: Path, *, durable: bool = True) -> None:
        self.home = home.absolute()
        self.durable = durable
        self._users: IO[str] | None = None

    def start(self) -> Self:
        """Start the server, or join those who use it already."""
        try:
            self._settle()
            with _lock(self.place / "start.lock", fcntl.LOCK_EX):
                self._users = _lock(self.place / "users.lock", fcntl.LOCK_SH)
                self._ensure_binaries()
                self._ensure_janitor()
                self._ensure_data()
                self._ensure_server()
        except BaseException as error:
            self.release()
            if isinstance(error, PermissionError):
                raise NoPostgres(f"{error.filename} is another user's: remove it, or set DATABASE_URL.") from error
            raise
        _in_use.add(self)
        self.url = f"postgres://postgres@:{PORT}/postgres?host={quote(str(self.socket_folder))}"
        return self

    def release(self) -> None:
        """Use it no longer. The end of the process does the same."""
        if self._users is not None:
            self._users.close()
            self._users = None
            _in_use.discard(self)

    def _settle(self) -> None:
        """Decide as whom the server runs, which binaries, and where."""
        self.account = server_account()
        self.binaries, self.version = find_binaries(self.account)
        self.home.parent.mkdir(parents=True, exist_ok=True)
        if not self.home.exists():
            _make_folder(self.home, 0o755, os.geteuid())
        root = self.home
        if not self._can_enter(self.home):
            root = Path("/var/tmp") / _unique_name(self.home)  # noqa: S108 (its owner is checked)
            _make_folder(root, 0o755, os.geteuid())
        self.place = root / f"pg{self.version.split('.')[0]}"
        if not self.place.exists():
            _make_folder(self.place, 0o755, os.geteuid())
        if root != self.home:  # so that people and `make clean` find it
            with suppress(FileExistsError):
                (self.home / self.place.name).symlink_to(self.place)
        self.data = self.socket_folder = self.place / "data"
        too_long = len(os.fsencode(self.data / f".s.PGSQL.{PORT}")) > SOCKET_PATH_BYTES
        if too_long or not re.fullmatch(r"[\w/. -]+", str(self.data)):  # a comma would make two folders of it
            self.socket_folder = Path("/tmp") / _unique_name(self.place)  # noqa: S108 (its owner is checked)

    def _can_enter(self, folder: Path) -> bool:
        cd = ["/bin/sh", "-c", 'cd "$0"', str(folder)]
        return subprocess.run(cd, check=False, cwd="/", **_pipes(), **self.account).returncode == 0

    def _ensure_binaries(self) -> None:
        if version_of(self.binaries, self.account) is None:
            self.binaries = copied_wheel(self.place / f"wheel-{self.version}")

    def _ensure_janitor(self) -> None:
        try:
            lock = _lock(self.place / "janitor.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # there is one
        with lock:  # the janitor inherits it
            program = [sys.executable, "-I", "-S", janitor.__file__]
            arguments = [lock.fileno(), self.place, self.binaries / "pg_ctl"]
            arguments += [self.account[name] for name in ("user", "group") if self.account]
            subprocess.run([*program, *map(str, arguments)], check=True, cwd="/", pass_fds=[lock.fileno()], **_pipes())

    def _ensure_data(self) -> None:
        if self.data.exists():
            _check_owner(self.data, self._owner())
            return
        unfinished = self.place / "data.unfinished"  # an initdb that was killed must not pass for a database
        shutil.rmtree(unfinished, ignore_errors=True)
        _make_folder(unfinished, 0o700, self._owner())
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8"]
        options += ["--locale=C.UTF-8" if sys.platform == "linux" else "--locale=C"]
        options += [] if self.durable else ["--no-sync"]
        initdb = self._run("initdb", "-D", unfinished.name, *options)
        if initdb.returncode:
            raise NoPostgres(f"initdb failed in {self.place}: {initdb.stderr.strip()}")
        unfinished.rename(self.data)

    def _ensure_server(self) -> None:
        if self.socket_folder != self.data:
            _make_folder(self.socket_folder, 0o700, self._owner())
        settings = {
            "listen_addresses": "",
            "port": PORT,
            "unix_socket_directories": self.socket_folder,
            "unix_socket_permissions": "0700",
            "max_connections": 200,
            **({} if self.durable else FAST),
        }
        options = shlex.join(f"--{name}={value}" for name, value in settings.items())
        give_up_at = time.monotonic() + START_SECONDS
        # Several tries: the children of a killed postmaster need a moment to notice, and hold its memory until then.
        while self._run("pg_isready", "-q", "-h", str(self.socket_folder), "-p", str(PORT)).returncode:
            for lock_file in (self.data / "postmaster.pid", self.socket_folder / f".s.PGSQL.{PORT}.lock"):
                if janitor.is_stale(lock_file, self.data):
                    lock_file.unlink()
            pg_ctl = self._run("pg_ctl", "start", "-w", "-s", "-D", "data", "-l", "data/server.log", "-o", options)
            if pg_ctl.returncode:
                time.sleep(0.2)
            if time.monotonic() > give_up_at:
                why = f"{' '.join(pg_ctl.stderr.split())} See {self.data / 'server.log'}"
                raise NoPostgres(f"PostgreSQL does not start: {why}, or set DATABASE_URL.")

    def _owner(self) -> int:
        return int(self.account.get("user", os.geteuid()))

    def _run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of PostgreSQL's in our place: relative paths need no quoting in the shell that pg_ctl uses."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        return subprocess.run(
            [str(self.binaries / program), *arguments],
            cwd=self.place,
            env={**environment, "LC_ALL": "C"},
            check=False,
            text=True,
            **_pipes(stderr=subprocess.PIPE),
            **self.account,
        )


def provide_database_url(home: Path, *, durable: bool) -> str:
    """DATABASE_URL; if there is none, that of the private server in `home`, for this process and its children."""
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = PrivatePostgres(home, durable=durable).start().url
    return os.environ["DATABASE_URL"]


_in_use: set[PrivatePostgres] = set()  # one that were collected would let go of its lock


def _pipes(**others: int) -> dict[str, Any]:
    return {**dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL), **others}


def _lock(path: Path, how: int) -> IO[str]:
    file = path.open("a")
    try:
        fcntl.flock(file, how)
    except BaseException:
        file.close()
        raise
    return file


def _make_folder(path: Path, mode: int, owner: int) -> None:
    with suppress(FileExistsError):
        path.mkdir()
        path.chmod(mode)
        os.chown(path, owner, -1)
    _check_owner(path, owner)


def _check_owner(path: Path, owner: int) -> None:
    """In /tmp anybody may have made a folder first, and a copied checkout may have its files from anybody."""
    if path.is_symlink() or path.stat().st_uid != owner:
        raise PermissionError(errno.EACCES, "not ours", str(path))


def _unique_name(path: Path) -> str:
    return f"cronoq-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
