"""Expire: fail runs that were not begun by their deadline, and free keys that ended runs have kept long enough.

Nothing hangs on it in time: a run past its deadline is not claimed, and whoever wants a key frees it.
"""

import logging

from cronoq_django.leader.stage import Stage
from cronoq_django.store import runs
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Expire(Stage):
    """Deadlines and keys."""

    name = "expire"
    prompt = True

    def step(self, tx: FencedTransaction) -> int:
        expired = runs.expire(tx, limit=self.batch)
        if expired:
            logger.warning("%d runs were not begun by their deadlines: failed.", len(expired))
        return len(expired)
