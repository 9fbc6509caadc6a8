"""Quarantine: end the waiting runs that nobody could decode, so that their trouble shows before they are due.

Only SQL puts such runs there. A worker that meets one first ends it in the same way; so it does with scripts that no
worker knows, of which the leader knows no better.
"""

import logging
from datetime import timedelta

from cronoq_django.leader.stage import Stage
from cronoq_django.store import runs
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Quarantine(Stage):
    """Waiting runs whose arguments are no list and no object."""

    name = "quarantine"
    every = timedelta(seconds=5)
    recovers = "runs quarantined"

    def step(self, tx: FencedTransaction) -> int:
        ended = runs.quarantine(tx, limit=self.batch)
        for run in ended:
            logger.error("Run %s is quarantined: its arguments can't be decoded.", run)
        return len(ended)
