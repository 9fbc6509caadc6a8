"""The watchdog: ends a session whose server does not answer.

Behind a failover or a broken proxy a socket can stay open with nothing behind it. Whoever waits for an answer there
waits for ever, can't be stopped, and still takes itself for the leader. So a thread shuts the socket down once the
server has owed an answer for too long; what waits for it fails as it does for any lost connection.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("cronoq")

LOOK = 0.25  # seconds between two looks


class Watchdog:
    """Watches one socket until `end()`. `patience()` says how many seconds without an answer are too many; it may
    change meanwhile."""

    def __init__(self, fileno: int, patience: Callable[[], float]) -> None:
        # A duplicate: the number of a descriptor that was closed meanwhile may be another socket's.
        self._socket = socket.fromfd(fileno, socket.AF_INET, socket.SOCK_STREAM)
        self._patience = patience
        self._ended = threading.Event()
        self.limit = float("inf")  # seconds: a shorter patience for a while
        self.asked_at: float | None = None  # monotonic: since when the server owes an answer
        self.answered_at = time.monotonic()  # when that was asked which it has last answered
        threading.Thread(target=self._watch, name="cronoq-watchdog", daemon=True).start()

    def end(self) -> None:
        """The session is closed."""
        self._ended.set()

    def _watch(self) -> None:
        with self._socket:
            while not self._ended.wait(LOOK):
                asked_at = self.asked_at
                if asked_at is None or time.monotonic() < asked_at + min(self._patience(), self.limit):
                    continue
                waited = time.monotonic() - asked_at
                logger.warning("The database has not answered for %.1f s: its connection is given up.", waited)
                with contextlib.suppress(OSError):  # it was gone already
                    self._socket.shutdown(socket.SHUT_RDWR)
                return
