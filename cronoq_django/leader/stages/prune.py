"""Prune: remove what is older than its retention, in small batches, whether or not the queues are ever empty.

A walk begins where the last one ended, so that what is kept longer costs nothing; once an hour it begins anew, for what
was passed over because somebody held it.
"""

import time
from datetime import datetime, timedelta

from cronoq_django.conf import conf
from cronoq_django.leader.stage import Stage
from cronoq_django.models.choices import Status
from cronoq_django.store import runs, slots
from cronoq_django.store.leadership import FencedTransaction

ANEW = 3600.0  # seconds


class Prune(Stage):
    """Finished runs with all that belongs to them, old revisions, terms, workers and statistics."""

    name = "prune"
    every = timedelta(seconds=30)
    batch = 1000

    def __init__(self) -> None:
        super().__init__()
        self._walked: dict[str, datetime] = {}
        self._anew_at = 0.0

    def step(self, tx: FencedTransaction) -> int:
        if time.monotonic() >= self._anew_at:
            slots.prune_history(tx)  # first: one that fails is not to be forgotten for an hour
            self._anew_at = time.monotonic() + ANEW
            self._walked.clear()
        for status, kept in conf().retention.items():
            before = tx.now - kept
            removed = runs.prune(
                tx, status=Status(status), since=self._walked.get(status), before=before, limit=self.batch
            )
            if removed == self.batch:
                return removed  # one full batch a transaction; the loop comes again
            self._walked[status] = before
        return 0
