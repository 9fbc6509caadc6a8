"""Rescue: take back the runs of vanished workers.

A lease runs out when its worker died, froze, or lost the database. The run goes back to its queue if attempts are left,
else it fails as lost. Whatever the old owner still sends is refused by the claim it no longer holds.
"""

import logging
from datetime import timedelta

from cronoq_django.leader.stage import Stage
from cronoq_django.store import runs
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Rescue(Stage):
    """Runs whose lease ran out."""

    name = "rescue"
    every = timedelta(seconds=2)

    def step(self, tx: FencedTransaction) -> int:
        taken_back = runs.rescue(tx, limit=self.batch)
        for run, status in taken_back.items():
            logger.warning("Run %s was lost with its worker: %s.", run, status)
        return len(taken_back)
