"""Coordinator: a leader-command process, leading or standing by."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.choices import CoordinatorStatus
from cronoq_django.models.fields import CleanTextField, TextListField


class Coordinator(models.Model):
    """A leader-command process. While one lives that declares a job of code, that job is not taken for gone."""

    id = models.UUIDField(primary_key=True, editable=False)
    host = CleanTextField(_("host"), max_length=200)
    process_id = models.IntegerField(_("process"))
    version = CleanTextField(_("version"), max_length=50)
    status = CleanTextField(_("status"), max_length=10, choices=CoordinatorStatus)
    declares = TextListField(_("declares"), default=list, help_text=_("The jobs in its code."))
    started_at = models.DateTimeField(_("started"), db_default=Now())
    last_heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=Now())

    class Meta:
        db_table = "cronoq_coordinator"
        verbose_name = _("coordinator")
        verbose_name_plural = _("coordinators")
        ordering = ("-started_at",)

    def __str__(self) -> str:
        return f"{self.host} ({self.process_id})"
