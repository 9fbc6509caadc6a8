"""RunDetail: progress, message and log of the runs that report any."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import CleanTextField
from cronoq_django.models.run import Run


class RunDetail(models.Model):
    """What a run said of itself. A table of its own: most runs say nothing, and a log would make the hot rows wide."""

    run = models.OneToOneField(
        Run, models.DO_NOTHING, primary_key=True, db_constraint=False, related_name="detail", verbose_name=_("run")
    )
    progress_done = models.BigIntegerField(_("done"), null=True, blank=True)
    progress_total = models.BigIntegerField(_("of"), null=True, blank=True)
    message = CleanTextField(_("message"), max_length=2000, blank=True, default="", db_default="")
    log = CleanTextField(_("log"), blank=True, default="", db_default="")

    class Meta:
        db_table = "cronoq_run_detail"
        verbose_name = _("run detail")
        verbose_name_plural = _("run details")

    def __str__(self) -> str:
        return str(self.run_id)
