"""LeaderTerm: the history of leadership, one row an epoch."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import CleanTextField, JsonField


class LeaderTerm(models.Model):
    """Who led from when until when, what was recovered, and why it ended: told by the successor if need be."""

    term = models.UUIDField(_("term"), primary_key=True, editable=False)
    epoch = models.BigIntegerField(_("epoch"))
    coordinator = models.UUIDField(_("coordinator"))
    host = CleanTextField(_("host"), max_length=200)
    from_at = models.DateTimeField(_("from"))
    until_at = models.DateTimeField(_("until"), null=True, blank=True)
    ended = CleanTextField(_("why it ended"), max_length=500, blank=True, default="", db_default="")
    recovered = JsonField(_("recovered"), default=dict)

    class Meta:
        db_table = "cronoq_leader_term"
        verbose_name = _("term")
        verbose_name_plural = _("terms")
        ordering = ("-from_at",)
        indexes = (models.Index(name="cronoq_leader_term_from", fields=["-from_at"]),)

    def __str__(self) -> str:
        return f"epoch {self.epoch} ({self.host})"
