"""Admit: begin the runs that wait until their job has room, and make room where the newest is to replace the others.

Waiting runs are cancelled in one transaction, running ones asked in another: locking both kinds in one would let two
of these meet in a deadlock.
"""

import logging

from cronoq_django.leader.stage import Stage
from cronoq_django.models.choices import Reason, Status
from cronoq_django.store import runs, slots
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Admit(Stage):
    """Runs of jobs with overlap=queue or overlap=replace."""

    name = "admit"
    prompt = True

    def step(self, tx: FencedTransaction) -> int:
        replaced = slots.replaced_runs(tx, limit=self.batch)
        waiting = [run for run, status in replaced if status != Status.RUNNING]
        if waiting and runs.cancel_waiting(
            tx, ids=waiting, reason=Reason.REPLACED, error="Replaced by a newer slot of its job.", limit=self.batch
        ):
            return self.batch
        if running := [run for run, status in replaced if status == Status.RUNNING]:
            asked = runs.request_cancel(tx, running)
            logger.info("%d runs are asked to end, for a newer slot of their job.", len(asked))
        return runs.admit(tx, limit=self.batch)
