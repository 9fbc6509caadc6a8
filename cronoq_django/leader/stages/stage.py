"""Stage: queue the runs whose time has come. Workers look at queued runs only, so waiting ones cost them nothing."""

from cronoq_django.leader.stage import Stage
from cronoq_django.store import runs
from cronoq_django.store.leadership import FencedTransaction


class StageRuns(Stage):
    """Scheduled runs that are due: delayed ones, retries, and slots with jitter."""

    name = "stage"
    prompt = True

    def step(self, tx: FencedTransaction) -> int:
        return runs.stage(tx, limit=self.batch)
