"""Prune: remove what is older than its retention, in small batches, whether or not the queues are ever empty."""

from datetime import timedelta

from cronoq_django.conf import conf
from cronoq_django.leader.stage import Stage
from cronoq_django.models.choices import Status
from cronoq_django.store import runs, slots
from cronoq_django.store.leadership import FencedTransaction


class Prune(Stage):
    """Finished runs with all that belongs to them, old revisions, terms, workers and statistics."""

    name = "prune"
    every = timedelta(seconds=30)
    batch = 1000

    def step(self, tx: FencedTransaction) -> int:
        for status, kept in conf().retention.items():
            removed = runs.prune(tx, status=Status(status), kept=kept, limit=self.batch)
            if removed == self.batch:
                return removed  # one full batch a transaction; the loop comes again
        slots.prune_history(tx)
        return 0
