"""A fleet of real leader and worker processes on the test's database, to be killed, frozen and cut."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psutil
import pytest
from django.db import connections

from .pgbouncer import pgbouncer  # noqa: F401  (a fixture)
from .server import own_server, server  # noqa: F401  (fixtures)

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """A command of ours in a process group of its own, its log in a file."""

    def __init__(self, log: Path, *arguments: str, **environment: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", *arguments],
                cwd=ROOT,
                env={
                    **os.environ,
                    "DATABASE_URL": database_url(),
                    "DJANGO_SETTINGS_MODULE": "tests.fault.settings",
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        """To the command itself."""
        self._process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """To the whole group: supervisor, children and all."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to the whole group: supervisor, children and all."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, seconds: float = 60) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self._process.wait(seconds)

    def wait(self, seconds: float = 60) -> int:
        return self._process.wait(seconds)

    @property
    def memory(self) -> int:
        """Its resident size, in bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text()


def database_url(alias: str = "default") -> str:
    """The cluster of an alias, for other processes."""
    return url_of(connections[alias].settings_dict)


def url_of(settings: dict[str, Any]) -> str:
    """A database as DATABASE_URL has it."""
    login = f"{quote(settings['USER'])}:{quote(settings['PASSWORD'])}"
    options = {"options": settings["OPTIONS"]["options"]}
    host = settings["HOST"]
    if host.startswith("/"):
        host, options["host"] = "", host
    return (
        f"postgres://{login}@{host}:{settings['PORT'] or 5432}/{settings['NAME']}?{urlencode(options, quote_via=quote)}"
    )


class Fleet:
    """Starts processes, and leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.processes: list[Process] = []

    def leader(self, *arguments: str, **environment: str) -> Process:
        return self._start("cronoq_leader", *arguments, **environment)

    def worker(self, *arguments: str, **environment: str) -> Process:
        return self._start("cronoq_worker", *(arguments or ("--pool", "default=4")), **environment)

    def command(self, *arguments: str, **environment: str) -> Process:
        return self._start(*arguments, **environment)

    def _start(self, *arguments: str, **environment: str) -> Process:
        process = Process(self._folder / f"{len(self.processes)}-{arguments[0]}.log", *arguments, **environment)
        self.processes.append(process)
        return process


@pytest.fixture
def fleet(transactional_db: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    for process in fleet.processes:
        process.kill()
    if hasattr(request.node, "failed"):
        for process in fleet.processes:
            print(f"--- {process.log.name}\n{process.output}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    if outcome.get_result().failed:
        item.failed = True
