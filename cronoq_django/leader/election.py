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
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import cronoq_django
from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import Unavailable
from cronoq_django.leader.fence import Fence
from cronoq_django.models.choices import CoordinatorStatus
from cronoq_django.models.ids import uuid7
from cronoq_django.store import leadership
from cronoq_django.store.session import Session, connect, listen, milliseconds, transaction, wait

logger = logging.getLogger("cronoq.leader")


@dataclass(frozen=True, slots=True)
class Identity:
    """This leader-command process. The id is random: host and process id are labels for people."""

    id: uuid.UUID = field(default_factory=uuid7)
    host: str = field(default_factory=socket.gethostname)
    process_id: int = field(default_factory=os.getpid)


class Election:
    """One session's part in the election. Closed with `close()`, which also gives the lock back."""

    def __init__(self, alias: str, identity: Identity) -> None:
        self.identity = identity
        self.ttl = conf().leader_ttl
        self.session: Session = connect(
            alias, name="cronoq leader", dsn=conf().leader_dsn, settings=_session_settings(self.ttl)
        )
        try:
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
            return None
        try:
            term = leadership.take_over(
                self.session, term=uuid.uuid4(), coordinator=self.identity.id, host=self.identity.host, ttl=self.ttl
            )
        except Unavailable as error:
            # A predecessor's transaction still holds the leader row: its session is dead or frozen, and times out soon.
            logger.warning("Got the lock, but not the leader row: %s", error)
            leadership.unlock(self.session)
            return None
        return Fence(self.session, term)

    def wait(self, timeout: float) -> None:
        """Sleep until `timeout` seconds passed or somebody notifies the leader's channel. Raises Unavailable."""
        wait(self.session, timeout)

    def close(self) -> None:
        """End the session, and with it the lock."""
        self.session.close()


def _session_settings(ttl: timedelta) -> dict[str, str]:
    """What makes the server end a session whose client is frozen or gone, within the TTL.

    A stopped process keeps its session and lock for ever otherwise, and the kernel answers its keepalives.
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
    }
