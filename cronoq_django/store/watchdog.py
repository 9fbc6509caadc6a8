"""The watchdog: ends a session whose server does not answer.

Behind a failover or a broken proxy a socket can stay open with nothing behind it. Whoever waits for an answer there
waits for ever, can't be stopped, and still takes itself for the leader. So a thread shuts the socket down once the
server has been silent for too long; what waits on it fails as it does for any lost connection.
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
    """Watches one socket until `end()`. `patience()` says how many seconds of silence are too many; it may change."""

    def __init__(self, fileno: int, patience: Callable[[], float]) -> None:
        # A duplicate: the number of a descriptor that was closed meanwhile may be another socket's.
        self._socket = socket.fromfd(fileno, socket.AF_INET, socket.SOCK_STREAM)
        self._patience = patience
        self._answered_at = time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="cronoq-watchdog", daemon=True).start()

    def answered(self, asked_at: float) -> None:
        """The server answered what it was asked at `asked_at` (monotonic)."""
        self._answered_at = asked_at

    @property
    def is_content(self) -> bool:
        """Whether the server answered recently enough."""
        return time.monotonic() < self._answered_at + self._patience()

    def end(self) -> None:
        """The session is closed."""
        self._ended.set()

    def _watch(self) -> None:
        with self._socket:
            while not self._ended.wait(LOOK):
                if not self.is_content:
                    logger.warning(
                        "The database has not answered for %.1f s: its connection is given up.",
                        time.monotonic() - self._answered_at,
                    )
                    with contextlib.suppress(OSError):  # it was gone already
                        self._socket.shutdown(socket.SHUT_RDWR)
                    return
