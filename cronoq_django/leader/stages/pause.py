"""Pause: stop the jobs that want to be stopped by a failure. Before `fire`, so that no slot follows one in the dark."""

import logging

from cronoq_django.leader.stage import Stage
from cronoq_django.store import slots
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Pause(Stage):
    """Jobs with pause_on_failure whose run has failed for good."""

    name = "pause"

    def step(self, tx: FencedTransaction) -> int:
        slots.set_actor(tx, "cronoq:pause_on_failure")
        paused = slots.pause_failing(tx, limit=self.batch)
        for job in paused:
            logger.warning("Job %s is paused: a run of it has failed.", job)
        return len(paused)
