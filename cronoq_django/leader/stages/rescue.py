"""Rescue: take back the runs of vanished workers.

A lease runs out when its worker died, froze, or lost the database. The run goes back to its queue if attempts are left,
else it fails as lost. Whatever the old owner still sends is refused by the claim it no longer holds. A lease also runs
out when somebody holds the row for that long; then its worker is still heard of, and keeps the run.

Not at once in a new term: if it was the database that was away, all leases ran out together, and living workers are
about to renew theirs. (A leader that came back first took every running task away from its worker, and it ran twice.)
"""

import logging
import time
from datetime import timedelta

from cronoq_django.conf import conf
from cronoq_django.leader.stage import Stage
from cronoq_django.store import runs
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Rescue(Stage):
    """Runs whose lease ran out."""

    name = "rescue"
    every = timedelta(seconds=2)
    recovers = "runs taken back"

    def __init__(self) -> None:
        super().__init__()
        # As long as a worker takes to come back and to renew.
        self._due = time.monotonic() + min(conf().lease.total_seconds() / 3, 5.0) + 2.0

    def step(self, tx: FencedTransaction) -> int:
        taken_back = runs.rescue(tx, limit=self.batch, lease=conf().lease)
        for run, status in taken_back.items():
            logger.warning("Run %s was lost with its worker: %s.", run, status)
        return len(taken_back)
