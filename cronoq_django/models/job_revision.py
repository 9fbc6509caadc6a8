"""JobRevision: an immutable snapshot of a job, one a change, written by trigger."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import CleanTextField, JsonField
from cronoq_django.models.job import Job


class JobRevision(models.Model):
    """A job as it was after one change, with who changed it and when."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(
        Job, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="revisions", verbose_name=_("job")
    )
    number = models.PositiveIntegerField(_("revision"))
    changed_at = models.DateTimeField(_("changed"), db_default=Now())
    changed_by = CleanTextField(_("by"), max_length=200)
    snapshot = JsonField(_("snapshot"))

    class Meta:
        db_table = "cronoq_job_revision"
        verbose_name = _("job revision")
        verbose_name_plural = _("job revisions")
        ordering = ("-number",)
        constraints = (models.UniqueConstraint(name="cronoq_job_revision_number", fields=["job", "number"]),)

    def __str__(self) -> str:
        return f"{self.job_id} #{self.number}"
