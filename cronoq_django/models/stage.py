"""Stage: when each duty of the leader last ran, and how it went."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import CleanTextField


class Stage(models.Model):
    """The last run of one duty."""

    name = CleanTextField(_("stage"), max_length=50, primary_key=True)
    epoch = models.BigIntegerField(_("epoch"))
    last_run_at = models.DateTimeField(_("last run"))
    duration = models.DurationField(_("duration"))
    rows = models.BigIntegerField(_("rows"), help_text=_("Handled in that run."))
    error = CleanTextField(_("error"), blank=True, default="", db_default="")
    error_at = models.DateTimeField(_("failed"), null=True, blank=True)

    class Meta:
        db_table = "cronoq_stage"
        verbose_name = _("stage")
        verbose_name_plural = _("stages")
        ordering = ("name",)

    def __str__(self) -> str:
        return str(self.name)
