"""Workers: mark workers and coordinators whose heartbeat stopped as lost, for people to see.

Nothing is decided by it: runs are taken back when their leases run out, and leadership is the lock's and the epoch's.
"""

from datetime import timedelta

from cronoq_django.conf import conf
from cronoq_django.leader.stage import Stage
from cronoq_django.store.leadership import FencedTransaction
from cronoq_django.store.workers import lose_workers


class Workers(Stage):
    """Silent processes."""

    name = "workers"
    every = timedelta(seconds=5)

    def step(self, tx: FencedTransaction) -> int:
        return lose_workers(tx, silence=max(conf().lease, 3 * conf().leader_ttl))
