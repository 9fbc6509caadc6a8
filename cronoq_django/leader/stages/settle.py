"""Settle: what waits for runs that have ended, where nobody else saw to it.

Whoever ends a run in a worker settles its dependants in the same transaction. Here come those that one could not see,
since they were committed at that moment; those that somebody held; those of very many; and all that waits for runs
which were cancelled, expired, skipped or deleted. One level a transaction: a long chain takes a step each.
"""

from cronoq_django.leader.stage import Stage
from cronoq_django.store import runs
from cronoq_django.store.leadership import FencedTransaction


class Settle(Stage):
    """Waiting runs whose prerequisites may have ended."""

    name = "settle"
    prompt = True

    def step(self, tx: FencedTransaction) -> int:
        return runs.settle(tx, limit=self.batch)
