"""The show: puts the processes on, watches them, and takes them off again.

                ┌──────────── --seconds are over: judged ────────────┐
    furnish ──► play ─── Ctrl-C, SIGTERM, or one of them ended ─────► stop

Web server, workers and leader are stopped in this order; a second Ctrl-C kills what has not stopped yet. To be judged,
the leader goes on until what was due has ended, since attempts that are put off are queued by it, and stops first.
"""

import fcntl
import http.client
import signal
import socket
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import IO

from django.db import Error, connection

from example_project.demo import work
from example_project.demo.child import Child
from example_project.demo.report import Report, database_now, missing, tally, unfinished

HOST, PORT = "127.0.0.1", 8000
POOLS = ("--pool", "default=4", "--pool", "mail=2")
WORKERS = ("worker-1", "worker-2")
LOOK = 0.2  # seconds between two looks at signals and children
TELL_EVERY = 5.0  # seconds between two lines
START_PATIENCE = 30.0  # seconds for all to come up
RUNS_PATIENCE = 20.0  # seconds for runs to end
SLACK = timedelta(seconds=1)  # slots so shortly before the end are not judged


class CannotPlay(RuntimeError):  # noqa: N818  (it reads as what it says)
    """Something is in the way; the message says what to do."""


class Show:
    """One performance. `play` is all there is to call; `say` prints a line."""

    def __init__(self, *, seconds: float | None, port: int | None, logs: Path, say: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._port = port
        self._logs = logs
        self._say = say
        self._signals = 0
        self._is_up = False
        self._children: list[Child] = []
        self._problems: list[str] = []

    def play(self) -> bool:
        """Furnish, play and stop; whether all went as it should. Raises CannotPlay."""
        lock = _only_one(self._logs)
        self._port = _choose(self._port)
        self._say("Preparing the database …")
        login = work.furnish()
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # it is ignored below nohup
            signal.signal(signal.SIGHUP, self._on_signal)
        since = database_now()
        try:
            self._start()
            self._come_up(since)
            if self._is_up:
                self._introduce(login)
            if self._watch(since):
                self._judge(since)
            elif self._seconds is not None and not self._problems:
                self._problems.append(f"stopped before {self._seconds:g} seconds were over: nothing is judged")
            if self._children:
                self._say("Stopping …")
        finally:  # also when there is nobody any more to say something to
            self._stop("web", *WORKERS, "leader")
            lock.close()
        for problem in self._problems:
            self._say(f"Wrong: {problem}")
        self._say("Stopped, and not all was well." if self._problems else "Stopped, and all was well.")
        return not self._problems

    def _start(self) -> None:
        self._children.append(Child("leader", "cronoq_leader", logs=self._logs))
        self._children += [Child(name, "cronoq_worker", *POOLS, logs=self._logs) for name in WORKERS]
        serve = ("runserver", "--noreload", "--skip-checks", f"{HOST}:{self._port}")
        self._children.append(Child("web", *serve, logs=self._logs, ends_with=(0, -signal.SIGTERM)))
        work.submit()

    def _come_up(self, since: datetime) -> None:
        """Wait until the leader leads, the workers are there and the admin answers."""
        give_up_at = time.monotonic() + START_PATIENCE
        while late := missing(since, workers=len(WORKERS)) or self._visit("/admin/login/"):
            self._look_after_children()
            if self._signals or self._problems:
                return
            if time.monotonic() > give_up_at:
                self._problems.append(f"{late} did not come up: see {self._logs}/")
                return
            time.sleep(LOOK)
        self._is_up = not self._problems

    def _introduce(self, login: str) -> None:
        pids = ", ".join(f"{child.name} {child.pid}" for child in self._children)
        self._say(
            f"\n  http://{HOST}:{self._port}/admin/    {login}\n\n"
            "  Jobs       place-sample-order fires every 5 seconds, count-the-stock-once once, in 8 seconds\n"
            "  Runs       send_invoice succeeds at the third attempt, charge_expired_card fails for good\n"
            f"  Processes  {pids}{': kill -9 any, it is started again' * (self._seconds is None)}\n"
            f"  Logs       {self._logs}/\n"
        )
        self._say("Ctrl-C ends all of it." if self._seconds is None else f"It ends after {self._seconds:g} seconds.")

    def _watch(self, since: datetime) -> bool:
        """Tell how it goes, until the time is over: True. A signal, or a child that ended, ends it early: False."""
        began = told = time.monotonic()
        while not self._signals and not self._problems:
            now = time.monotonic()
            if self._seconds is not None and now >= began + self._seconds:
                return True
            if now >= told + TELL_EVERY:
                told += TELL_EVERY
                self._say(f"{now - began:5.0f} s  {self._tally(since)}")
            self._look_after_children()
            time.sleep(LOOK)
        return False

    def _judge(self, since: datetime) -> None:
        """Let what was due end, stop the leader and then the others, and report."""
        until = database_now()
        self._wait_for_runs(since, until)
        self._stop("leader")
        self._wait_for_runs(since, database_now())
        self._stop("web", *WORKERS)
        report = Report(since, until - SLACK)
        self._say("\n" + "\n".join(report.lines) + "\n")
        self._problems += report.problems

    def _wait_for_runs(self, since: datetime, until: datetime) -> None:
        give_up_at = time.monotonic() + RUNS_PATIENCE
        while not self._signals and time.monotonic() < give_up_at and unfinished(since, until).exists():
            time.sleep(LOOK)

    def _look_after_children(self) -> None:
        """Start those again that somebody killed, to see what happens. Whatever else ends by itself ends the show."""
        for child in self._children:
            if child.was_killed() and self._is_up and self._seconds is None:
                child.start()
                self._say(f"{child.name} was killed: started again, {child.pid}.")
            elif child.has_ended():
                self._problems.append(f"{child.name} ended by itself. Its last words:\n{child.last_words()}")

    def _stop(self, *names: str) -> None:
        """Stop the children of these names, workers side by side, the others one after the other."""
        for kind in dict.fromkeys(name.partition("-")[0] for name in names):
            stopping = [child for child in self._children if child.name in names and child.name.startswith(kind)]
            for child in stopping:
                child.ask_to_stop()
            for child in stopping:
                if problem := child.wait(was_starting=not self._is_up):
                    self._problems.append(problem)
                self._children.remove(child)

    def _visit(self, path: str) -> str:
        """Fetch a page; "the web server" as long as there is none. Any answer but 200 is a problem."""
        web = http.client.HTTPConnection(HOST, self._port, timeout=START_PATIENCE)
        try:
            web.request("GET", path)
            status = web.getresponse().status
        except OSError:
            return "the web server"
        finally:
            web.close()
        if status != http.HTTPStatus.OK:
            self._problems.append(f"{path} answered {status}: see {self._logs}/web.log")
        return ""

    def _tally(self, since: datetime) -> str:
        try:
            return tally(since)
        except Error as error:
            connection.close()
            return f"the database does not answer: {' '.join(str(error).split())}"

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            for child in self._children:
                child.kill()


def _only_one(logs: Path) -> IO[str]:
    """A lock: a second demo would write over the first one's logs, and find its leader leading."""
    logs.mkdir(parents=True, exist_ok=True)
    lock = (logs / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CannotPlay("Another demo is running here: end it first.") from None
    return lock


def _choose(port: int | None) -> int:
    """The port asked for; else the usual one, or a free one if that is taken."""
    for candidate in (PORT, 0) if port is None else (port,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, candidate))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise CannotPlay(f"Port {port} is taken: choose another with --port, or leave it out.")
