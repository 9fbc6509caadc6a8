"""Worker: a process that claims and executes runs under leases."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.choices import WorkerStatus
from cronoq_django.models.fields import CleanTextField, JsonField, TextListField
from cronoq_django.models.ids import uuid7


class Worker(models.Model):
    """A worker process. Its id is new at each start; host, process id and name are labels for people."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = CleanTextField(_("name"), max_length=200)
    host = CleanTextField(_("host"), max_length=200)
    process_id = models.IntegerField(_("process"))
    version = CleanTextField(_("version"), max_length=50)
    pools = JsonField(_("pools"), default=dict, help_text=_("Concurrency by pool."))
    concurrency = models.PositiveIntegerField(_("concurrency"))
    scripts = TextListField(_("scripts"), default=list, help_text=_("The scripts it knows."))
    status = CleanTextField(
        _("status"), max_length=10, choices=WorkerStatus, default=WorkerStatus.ONLINE, db_default=WorkerStatus.ONLINE
    )
    running = models.PositiveIntegerField(_("running"), default=0, db_default=0)
    started_at = models.DateTimeField(_("started"), db_default=Now())
    last_heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=Now())
    drain_requested_at = models.DateTimeField(_("drain requested"), null=True, blank=True)

    class Meta:
        db_table = "cronoq_worker"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        ordering = ("-started_at",)
        permissions = (("drain_worker", "Can drain a worker"),)

    def __str__(self) -> str:
        return str(self.name)
