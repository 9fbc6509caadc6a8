"""Wake-up: one place to sleep for everything that a child waits for.

Notifications on its session, messages of the supervisor, and outcomes from its threads all end the same sleep, so the
loop needs no polling to be prompt, and polls only as a fallback.
"""

import contextlib
import os
import selectors
from multiprocessing.connection import Connection

from psycopg import Notify

from cronoq_django.errors import translated
from cronoq_django.store.session import Session


class Wakeup:
    """Sleeps in the loop's thread; `set()` from any other."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def set(self) -> None:
        """End the sleep, or the next one. From any thread, and from signal handlers."""
        with contextlib.suppress(BlockingIOError):  # full: it is set already
            os.write(self._write, b".")

    def wait(self, session: Session | None, timeout: float) -> list[Notify]:
        """Sleep up to `timeout` seconds; what the database notified of. Raises Unavailable if the session is lost."""
        # What came with an answer is not on the wire any more: a child that had queued the next link of a chain slept.
        notified = _heard(session) if session is not None else []
        with selectors.DefaultSelector() as selector:
            selector.register(self._read, selectors.EVENT_READ)
            selector.register(self._control, selectors.EVENT_READ)
            if session is not None:
                with translated():
                    selector.register(session.fileno(), selectors.EVENT_READ, data="session")
            ready = selector.select(0.0 if notified else timeout)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)
        if session is None or not any(key.data == "session" for key, _ in ready):
            return notified
        return notified + _heard(session)


def _heard(session: Session) -> list[Notify]:
    with translated():
        return list(session.notifies(timeout=0))
