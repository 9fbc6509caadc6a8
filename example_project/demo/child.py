"""A child: one process of the demo."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from django.conf import settings

PATIENCE = 15  # seconds that a child may take to stop; a worker finishes what it runs
PR_SET_PDEATHSIG = 1
LAST_LINES = 8


class Child:
    """A management command in a session of its own, with its output in a file.

    In its own session no Ctrl-C of the terminal reaches it: the demo stops its children itself, in order.
    """

    def __init__(self, name: str, *command: str, logs: Path, ends_with: tuple[int, ...] = (0,)) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self.log.write_text("")
        self._command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *command]
        self._ends_with = ends_with
        self.start()

    def start(self) -> None:
        """Start it, also once more."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                preexec_fn=_end_with_parent(),  # noqa: PLW1509  (the demo has one thread)
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def was_killed(self) -> bool:
        """Whether it ended of a signal, as when somebody killed it."""
        return (self._process.poll() or 0) < 0

    def ask_to_stop(self) -> None:
        """Ask the process itself, and not the ones it started: a worker drains its own."""
        self._process.terminate()

    def kill(self) -> None:
        """End it and what it started, at once."""
        if not self.has_ended():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def wait(self, *, was_starting: bool) -> str:
        """Wait until it has stopped, for as long as patience lasts; what was wrong with its end, or nothing.

        One that was still starting may have known no better than to die of the signal.
        """
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
            return f"{self.name} did not stop within {PATIENCE} seconds and was killed: see {self.log}"
        fine = code in self._ends_with or (was_starting and code == -signal.SIGTERM)
        return "" if fine else f"{self.name} ended with exit code {code}: see {self.log}"

    def last_words(self) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])


def _end_with_parent() -> Callable[[], None] | None:
    """Has the kernel stop a child whose parent was killed and could not do it itself; where there is Linux."""
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed just now
            os._exit(1)

    return ask
