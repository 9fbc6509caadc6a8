"""Unsettled: an outbox of prerequisites that may have ended without seeing to all that waits for them.

A waiting run was committed at that moment, or somebody held it, or there were too many for one transaction; or the
prerequisite was cancelled, expired, skipped or deleted. The leader's `settle` takes the rows.
"""

from django.db import models


class Unsettled(models.Model):
    """Tells `settle` to look at what waits for a run."""

    id = models.BigAutoField(primary_key=True)
    run = models.UUIDField()

    class Meta:
        db_table = "cronoq_unsettled"

    def __str__(self) -> str:
        return str(self.run)
