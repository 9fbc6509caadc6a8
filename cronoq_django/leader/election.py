"""Election: who leads.

A candidate opens one dedicated session and tries for the cluster's advisory lock, again and again, never waiting for
it. The lock only says who may try; what makes a leader is the raised epoch: `take_over` waits for a predecessor's open
transaction, and from then on the fence refuses the predecessor. That one session does all of the leader's writing, so
losing it is losing the ability to write.

    standby ──lock──► candidate ──epoch raised──► leading ──resigned / fenced / session lost──► standby
"""

import logging
import os
import socket
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache

import cronoq_django
from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import CannotLead, Unavailable, translated
from cronoq_django.leader.fence import Fence
from cronoq_django.models.choices import CoordinatorStatus
from cronoq_django.models.ids import uuid7
from cronoq_django.store import leadership
from cronoq_django.store.session import changes_backend, connect, listen, milliseconds, transaction, wait

logger = logging.getLogger("cronoq.leader")


@dataclass(frozen=True, slots=True)
class Identity:
    """This leader-command process. The id is random: host and process id are labels for people."""

    id: uuid.UUID = field(default_factory=uuid7)
    host: str = field(default_factory=socket.gethostname)
    process_id: int = field(default_factory=os.getpid)


class Election:
    """One session's part in the election. Closed with `close()`, which also gives the lock back.

    Raises Unavailable, or CannotLead if the way to the database goes through a pooler in transaction mode.
    """

    def __init__(self, alias: str, identity: Identity, patience: Callable[[], float] | None = None) -> None:
        """`patience`: for how many seconds of the database's silence the session is still trusted."""
        self.identity = identity
        self.ttl = conf().leader_ttl
        settings = {**_session_settings(self.ttl), **_search_path(alias)}
        self.session = connect(
            alias,
            name="cronoq leader",
            dsn=conf().leader_dsn,
            settings=settings,
            patience=patience or self.ttl.total_seconds,
        )
        try:
            if self.session.is_pooled:
                if changes_backend(self.session):
                    raise CannotLead(leadership.POOLED)
                with translated():
                    self.session.settle(settings)  # one in session mode
            listen(self.session, "leader")
            self.registered_at = self.register(CoordinatorStatus.STANDBY)
        except BaseException:
            self.session.close()
            raise

    def register(self, status: CoordinatorStatus) -> datetime:
        """Write this coordinator's row, or its heartbeat; when it first registered. Raises Unavailable."""
        with transaction(self.session) as cursor:
            return leadership.register_coordinator(
                cursor,
                coordinator=self.identity.id,
                host=self.identity.host,
                process_id=self.identity.process_id,
                version=cronoq_django.__version__,
                status=status,
                declares=sorted(registry.jobs()),
            )

    def try_to_lead(self) -> Fence | None:
        """Take the lock and raise the epoch: the fence of the new term; None if another leads. Raises Unavailable."""
        if not leadership.try_lock(self.session):
            self._look_for_the_lost()
            return None
        try:
            term = leadership.take_over(
                self.session, coordinator=self.identity.id, host=self.identity.host, ttl=self.ttl
            )
        except CannotLead:
            leadership.unlock(self.session)  # if it is on the backend that has the lock
            raise
        except Unavailable as error:
            # Not a predecessor: its session had the lock, and with it went its transaction. Somebody in a console?
            holders = ", ".join(leadership.row_holders(self.session))
            logger.warning("Got the lock, but can't lead: %s%s", error, holders and f" (held by {holders})")
            leadership.unlock(self.session)
            return None
        return Fence(self.session, term)

    def _look_for_the_lost(self) -> None:
        """End the session of a leader that keeps the lock and has no heartbeat any more.

        The server does that by its timeouts, but for one that is stopped while it reads a large answer: over a Unix
        socket that was never noticed.
        """
        for pid, host, is_ended in leadership.end_lost_leader(self.session):
            told = "its session is ended" if is_ended else "its session can't be ended by this role"
            logger.warning("The leader on %s (session %d) has the lock but no heartbeat: %s.", host, pid, told)

    def resign(self) -> None:
        """Give the lock back, so that a standby leads at once."""
        leadership.unlock(self.session, tell=True)

    def wait(self, timeout: float) -> None:
        """Sleep until `timeout` seconds passed or somebody notifies the leader's channel. Raises Unavailable."""
        wait(self.session, timeout)

    def close(self) -> None:
        """End the session, and with it the lock."""
        self.session.close()


def _session_settings(ttl: timedelta) -> dict[str, str]:
    """What makes the server end a session whose client is frozen or gone, within the TTL.

    A stopped process keeps its session and lock for ever otherwise, and the kernel answers its keepalives. However the
    timeouts follow one another, in and after a transaction, they stay below the TTL together.
    """
    return {
        "idle_session_timeout": milliseconds(ttl),
        "lock_timeout": milliseconds(ttl / 5),
        "idle_in_transaction_session_timeout": milliseconds(ttl / 2),
        "statement_timeout": milliseconds(ttl / 2),
        "client_connection_check_interval": milliseconds(ttl / 5),
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "1",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": milliseconds(ttl / 2),
        "jit": "off",  # compiling took a second, for a statement of a millisecond
    }


def _search_path(alias: str) -> dict[str, str]:
    """With an address of its own, the leader must still find the alias's cluster, and no other."""
    if not conf().leader_dsn:
        return {}
    here, there = (_cluster(alias, dsn) for dsn in ("", conf().leader_dsn))
    if here[1:] != there[1:]:
        raise CannotLead(
            f"CRONOQ['LEADER_DSN'] leads to the database {there[1]!r}, and the alias {alias!r} to {here[1]!r}"
            f"{'' if here[1] != there[1] else ' on another server'}: they must be the same."
        )
    return {"search_path": here[0]}


@cache
def _cluster(alias: str, dsn: str) -> tuple[str, str, int]:
    """Where the alias, or the address, leads to: asked once, since the alias may not answer any more later on."""
    session = connect(alias, name="cronoq leader", dsn=dsn, patience=lambda: 5.0)
    with closing(session), transaction(session) as cursor:
        return leadership.cluster_of(cursor)
