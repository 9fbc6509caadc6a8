"""JobChange: an outbox. Each committed change of a job's schedule, and its deletion, leaves a row, which `plan` takes.

A row, not a time or a counter to compare with: an edit in a transaction that commits late would be missed by either.
"""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class JobChange(models.Model):
    """Tells `plan` to look at a job again."""

    id = models.BigAutoField(primary_key=True)
    job = models.UUIDField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "cronoq_job_change"
        verbose_name = _("job change")
        verbose_name_plural = _("job changes")

    def __str__(self) -> str:
        return f"{self.job} at {self.at}"
