"""Leader: the one row whose epoch fences every write of a leader."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import CleanTextField


class Leader(models.Model):
    """Who leads, in which term. Taking over raises `epoch` and draws a new `term`; each leader commit reads both."""

    id = models.SmallIntegerField(primary_key=True, default=1, db_default=1, editable=False)
    epoch = models.BigIntegerField(_("epoch"))
    term = models.UUIDField(
        _("term"), help_text=_("A random mark: an epoch that a lossy failover rewound is not mistaken for this one.")
    )
    coordinator = models.UUIDField(_("coordinator"))
    host = CleanTextField(_("host"), max_length=200)
    backend_pid = models.IntegerField(_("backend"))
    backend_start = models.DateTimeField(_("backend started"))
    acquired_at = models.DateTimeField(_("leading since"))
    renewed_at = models.DateTimeField(_("last heartbeat"))
    ttl = models.DurationField(_("TTL"))

    class Meta:
        db_table = "cronoq_leader"
        verbose_name = _("leader")
        verbose_name_plural = _("leader")
        constraints = (models.CheckConstraint(name="cronoq_leader_one", condition=Q(id=1)),)

    def __str__(self) -> str:
        return f"{self.host}, epoch {self.epoch}"
