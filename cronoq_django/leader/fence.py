"""The fence: how a leader writes, and the only way it can.

Every transaction begins by reading the epoch again, locked against a successor's take-over. So a leader that was
replaced, frozen, cut off or resumed writes nothing: its first statement raises `Fenced`, or its session is gone.
"""

import time
from contextlib import AbstractContextManager

from cronoq_django.conf import conf
from cronoq_django.store.leadership import FencedTransaction, Term
from cronoq_django.store.session import Session, transaction
from cronoq_django.store.slots import Look, look


class Fence:
    """One term on one session."""

    def __init__(self, session: Session, term: Term) -> None:
        self._session = session
        self.term = term

    @property
    def is_lost(self) -> bool:
        """Whether the session is known to be gone, and the term with it."""
        return self._session.closed

    @property
    def is_trusted(self) -> bool:
        """Whether the database has confirmed the term so recently that the server can't have ended the session for its
        silence: for who only asks. Who writes needs no trust. (A session that somebody ends is known to be lost when it
        is next used, half a second later.)"""
        watchdog, ttl = self._session.watchdog, conf().leader_ttl.total_seconds()
        shortest = ttl if watchdog.asked_at is None else ttl / 2  # the server's timeouts
        return not self.is_lost and time.monotonic() < watchdog.answered_at + 0.9 * shortest

    def look(self) -> Look:
        """What there is to do. Raises Fenced or Unavailable."""
        with transaction(self._session) as cursor:
            return look(cursor, self.term)

    def transaction(self) -> AbstractContextManager[FencedTransaction]:
        """A transaction of this term. Raises Fenced if another leader took over, Unavailable if the session is lost."""
        return FencedTransaction.begin(self._session, self.term)
