"""The fence: how a leader writes, and the only way it can.

Every transaction begins by reading the epoch again, locked against a successor's take-over. So a leader that was
replaced, frozen, cut off or resumed writes nothing: its first statement raises `Fenced`, or its session is gone.
"""

from contextlib import AbstractContextManager

from cronoq_django.store.leadership import FencedTransaction, Term
from cronoq_django.store.session import Session


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
        """Whether the database has confirmed the term so recently that nobody can have taken over: for who only asks.
        Who writes needs no trust."""
        return not self.is_lost and self._session.watchdog is not None and self._session.watchdog.is_content

    def transaction(self) -> AbstractContextManager[FencedTransaction]:
        """A transaction of this term. Raises Fenced if another leader took over, Unavailable if the session is lost."""
        return FencedTransaction.begin(self._session, self.term)
