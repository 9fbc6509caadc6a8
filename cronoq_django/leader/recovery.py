"""Recovery: what each term sets right after its predecessor, fenced like everything else, counted on the term.

First, before anything fires: jobs that were changed but not planned. Then, in the first run of their stages, what must
not hold up the rest: runs that can't be decoded, and runs whose owners vanished (`rescue` gives living workers the time
to renew their leases first).
"""

import logging
from collections.abc import Sequence

from cronoq_django.leader.election import Identity
from cronoq_django.leader.fence import Fence
from cronoq_django.leader.stage import Stage
from cronoq_django.store import leadership, slots
from cronoq_django.store.leadership import Ended, FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Recovery:
    """What one term has recovered by now."""

    def __init__(self, fence: Fence, identity: Identity, *, last: Ended, stages: Sequence[Stage]) -> None:
        """Begin, and write down the new term. `last`: what this process knows of its own one before."""
        with fence.transaction() as tx:
            self.counts = {"jobs to plan": slots.add_missing_changes(tx)}
            leadership.open_term(tx, coordinator=identity.id, host=identity.host, recovered=self.counts, last=last)
        self._waits_for = {stage for stage in stages if stage.recovers}
        self.is_noted = True

    def ran(self, stage: Stage, *, rows: int, again: bool) -> None:
        """A stage ran: its first runs, up to the one that found no more, belong to recovery."""
        if stage not in self._waits_for:
            return
        self.counts[stage.recovers] = self.counts.get(stage.recovers, 0) + rows
        self.is_noted = False
        if not again:
            self._waits_for.remove(stage)
            if not self._waits_for:
                logger.info("Recovered: %s.", ", ".join(f"{number} {what}" for what, number in self.counts.items()))

    def note(self, tx: FencedTransaction) -> None:
        """Keep the counts on the term, if they have changed."""
        if not self.is_noted:
            leadership.note_recovery(tx, self.counts)
            self.is_noted = True
