"""Stat: counters by minute, pool and script, for charts."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import CleanTextField


class Stat(models.Model):
    """What ended within one minute. Recomputed from the runs, so workers pay nothing and late commits are counted."""

    id = models.BigAutoField(primary_key=True)
    minute = models.DateTimeField(_("minute"))
    pool = CleanTextField(_("pool"), max_length=100)
    script = CleanTextField(_("script"), max_length=500)
    succeeded = models.BigIntegerField(_("succeeded"), default=0, db_default=0)
    failed = models.BigIntegerField(_("failed"), default=0, db_default=0)
    cancelled = models.BigIntegerField(_("cancelled"), default=0, db_default=0)
    skipped = models.BigIntegerField(_("skipped"), default=0, db_default=0)
    run_time = models.DurationField(_("run time"))
    wait = models.DurationField(_("wait"))
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "cronoq_stat"
        verbose_name = _("statistic")
        verbose_name_plural = _("statistics")
        constraints = (models.UniqueConstraint(name="cronoq_stat_bucket", fields=["minute", "pool", "script"]),)

    def __str__(self) -> str:
        return f"{self.minute} {self.pool} {self.script}"
