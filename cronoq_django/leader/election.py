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

from django.db import connections

import cronoq_django
from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import Pooled, Unavailable, translated
from cronoq_django.leader.fence import Fence
from cronoq_django.models.choices import CoordinatorStatus
from cronoq_django.models.ids import uuid7
from cronoq_django.store import leadership
from cronoq_django.store.session import connect, listen, milliseconds, transaction, wait

logger = logging.getLogger("cronoq.leader")


@dataclass(frozen=True, slots=True)
class Identity:
    """This leader-command process. The id is random: host and process id are labels for people."""

    id: uuid.UUID = field(default_factory=uuid7)
    host: str = field(default_factory=socket.gethostname)
    process_id: int = field(default_factory=os.getpid)


class Election:
    """One session's part in the election. Closed with `close()`, which also gives the lock back.

    Raises Unavailable, or Pooled if the way to the database goes through a pooler in transaction mode.
    """

    def __init__(self, alias: str, identity: Identity, patience: Callable[[], float] | None = None) -> None:
        """`patience`: for how many seconds of the database's silence the session is still trusted."""
        self.identity = identity
        self.ttl = conf().leader_ttl
        self.session = connect(
            alias,
            name="cronoq leader",
            dsn=conf().leader_dsn,
            settings={**_session_settings(self.ttl), **_search_path(alias)},
            patience=patience or self.ttl.total_seconds,
        )
        try:
            if self.session.is_pooled:
                raise Pooled(leadership.POOLED)
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
                self.session, coordinator=self.identity.id, host=self.identity.host, ttl=self.ttl
            )
        except Pooled:
            leadership.unlock(self.session)  # if it is on the backend that has the lock
            raise
        except Unavailable as error:
            # Not a predecessor: its session had the lock, and with it went its transaction. Somebody in a console?
            holders = ", ".join(leadership.row_holders(self.session)) or "nobody any more"
            logger.warning("Got the lock, but not the leader row, which is held by %s: %s", holders, error)
            leadership.unlock(self.session)
            return None
        return Fence(self.session, term)

    def resign(self) -> None:
        """Give the lock back, so that a standby leads at once."""
        leadership.unlock(self.session)

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
    }


def _search_path(alias: str) -> dict[str, str]:
    """With an address of its own, the leader must still find the alias's cluster, and no other in that database."""
    if not conf().leader_dsn:
        return {}
    with translated(), closing(connections[alias]), connections[alias].cursor() as cursor:
        return {"search_path": leadership.path_of(cursor)}
