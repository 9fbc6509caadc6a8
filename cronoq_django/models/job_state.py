"""JobState: the scheduler's bookkeeping, one row a job, written by the fenced leader alone.

It is a table of its own so that a stale `job.save()` cannot rewind it, and so that somebody's open edit of a job does
not stall its firing: each was seen to happen with one table.
"""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import EARLIEST, END, CleanTextField
from cronoq_django.models.job import Job


class JobState(models.Model):
    """What is planned for a job, and what became of its slots."""

    job = models.OneToOneField(
        Job, models.DO_NOTHING, primary_key=True, db_constraint=False, related_name="state", verbose_name=_("job")
    )
    partition = models.PositiveSmallIntegerField(help_text=_("0 to 63: decides which coordinator ticks the job."))
    planned_revision = models.PositiveIntegerField(
        help_text=_("The schedule revision that the next slot was computed for.")
    )
    next_run_at = models.DateTimeField(_("next slot"), null=True, blank=True)
    last_slot = models.DateTimeField(_("last slot"), null=True, blank=True)
    completed_at = models.DateTimeField(
        _("completed"), null=True, blank=True, help_text=_("Since when no slot is left.")
    )
    missed_count = models.BigIntegerField(_("missed"), default=0, db_default=0)
    skipped_count = models.BigIntegerField(_("skipped"), default=0, db_default=0)
    explanation = CleanTextField(
        _("explanation"),
        max_length=2000,
        default="",
        db_default="",
        help_text=_("What the scheduler last decided, and why."),
    )
    error = CleanTextField(
        _("error"),
        max_length=2000,
        default="",
        db_default="",
        help_text=_("Why the job is not fired until it is edited."),
    )
    epoch = models.BigIntegerField()
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "cronoq_job_state"
        verbose_name = _("job state")
        verbose_name_plural = _("job states")
        indexes = (
            models.Index(name="cronoq_job_state_error", fields=["job"], condition=~models.Q(error="")),
            models.Index(
                name="cronoq_job_state_due", fields=["next_run_at"], condition=models.Q(next_run_at__isnull=False)
            ),
        )

        # What a driver can't read would stop the leader at this row.
        constraints = (
            models.CheckConstraint(
                name="cronoq_job_state_times",
                condition=models.Q(next_run_at__range=(EARLIEST, END), last_slot__range=(EARLIEST, END)),
            ),
        )

    def __str__(self) -> str:
        return f"{self.job_id}: next {self.next_run_at}"
