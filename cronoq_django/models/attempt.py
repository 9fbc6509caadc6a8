"""Attempt: one begun execution of a run, kept for every one that did not simply succeed at first try."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.choices import Outcome
from cronoq_django.models.fields import CleanTextField
from cronoq_django.models.run import Run, reference
from cronoq_django.models.worker import Worker


class Attempt(models.Model):
    """Who executed a run when, and how that ended."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(
        Run, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="attempt_set", verbose_name=_("run")
    )
    number = models.PositiveIntegerField(_("number"), help_text=_("Snoozed and released attempts repeat their number."))
    worker = reference(Worker, _("worker"))
    claim = models.BigIntegerField(_("claim"))
    started_at = models.DateTimeField(_("started"))
    ended_at = models.DateTimeField(_("ended"))
    outcome = CleanTextField(_("outcome"), max_length=10, choices=Outcome)
    exception_class = CleanTextField(_("exception"), max_length=500, blank=True, default="", db_default="")
    error = CleanTextField(_("error"), blank=True, default="", db_default="")
    traceback = CleanTextField(_("traceback"), blank=True, default="", db_default="")

    class Meta:
        db_table = "cronoq_attempt"
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering = ("id",)
        indexes = (models.Index(name="cronoq_attempt_run", fields=["run", "id"]),)
        constraints = (models.CheckConstraint(name="cronoq_attempt_outcome", condition=Q(outcome__in=Outcome.values)),)

    def __str__(self) -> str:
        return f"{self.run_id} #{self.number}: {self.outcome}"
