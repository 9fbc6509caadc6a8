"""Unsettled: an outbox. A waiting run leaves a row here when a prerequisite may have ended without seeing to it.

That is: it was committed while the prerequisite was ending; somebody held it at that moment; the prerequisite was
cancelled, expired or deleted by those who must not wait for other runs. The leader's `settle` takes each row once.
"""

from django.db import models


class Unsettled(models.Model):
    """Tells `settle` to look at what a run waits for."""

    id = models.BigAutoField(primary_key=True)
    run = models.UUIDField()

    class Meta:
        db_table = "cronoq_unsettled"

    def __str__(self) -> str:
        return str(self.run)
