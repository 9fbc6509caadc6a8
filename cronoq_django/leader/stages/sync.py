"""Sync: what code declares becomes rows.

Jobs declared with @job are kept equal to their declaration until the admin adopts them; one that no live coordinator
declares is disabled, never deleted. Only what a process started earlier declared is overwritten, so that old and new
code side by side, as in a rolling deploy, do not take turns.
"""

import logging
from datetime import datetime, timedelta

from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import CronoqError
from cronoq_django.leader.stage import Stage
from cronoq_django.store import slots
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Sync(Stage):
    """Scripts, pools and jobs of this process's code."""

    name = "sync"
    every = timedelta(seconds=10)

    def __init__(self, declared_at: datetime) -> None:
        super().__init__()
        self._declared_at = declared_at

    def step(self, tx: FencedTransaction) -> int:
        slots.set_actor(tx, "cronoq:sync")
        scripts = [
            slots.KnownScript(name, str(one.signature), one.signature_hash, one.doc)
            for name, one in sorted(registry.scripts().items())
        ]
        slots.sync_scripts(tx, scripts)
        written = sum(self._sync_job(tx, declared) for _, declared in sorted(registry.jobs().items()))
        gone = slots.disable_gone_jobs(tx, silence=3 * conf().leader_ttl)
        for name in gone:
            logger.warning("Job %s is no longer in any live code: disabled.", name)
        slots.sync_pools(tx, sorted({one.task.queue_name for one in registry.scripts().values()}))
        slots.plan_known_again(tx, known=registry.names(), silence=2 * conf().lease)
        return written + len(gone)

    def _sync_job(self, tx: FencedTransaction, declared: registry.DeclaredJob) -> bool:
        try:
            with tx.savepoint():
                written = slots.sync_job(tx, declared, declared_at=self._declared_at)
        except CronoqError:
            raise
        except Exception as error:
            self.trouble = f"{declared.name}: {error}"
            logger.exception("Job %s of the code could not be written.", declared.name)
            return False
        if written:
            logger.info("Job %s written from code.", declared.name)
        return written
