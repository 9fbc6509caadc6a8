"""Dependency: a run waits for another to end."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.choices import Condition
from cronoq_django.models.fields import CleanTextField
from cronoq_django.models.run import Run


class Dependency(models.Model):
    """`run` may start when `prerequisite` has ended as `condition` says. Whether it has is derived, never stored."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(
        Run, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="prerequisites", verbose_name=_("run")
    )
    prerequisite = models.ForeignKey(
        Run,
        models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="dependants",
        verbose_name=_("prerequisite"),
    )
    condition = CleanTextField(
        _("condition"), max_length=10, choices=Condition, default=Condition.SUCCESS, db_default=Condition.SUCCESS
    )
    settled_at = models.DateTimeField(_("settled"), null=True, blank=True)

    class Meta:
        db_table = "cronoq_dependency"
        verbose_name = _("dependency")
        verbose_name_plural = _("dependencies")
        constraints = (
            models.UniqueConstraint(name="cronoq_dependency_pair", fields=["run", "prerequisite"]),
            models.CheckConstraint(name="cronoq_dependency_condition", condition=Q(condition__in=Condition.values)),
            models.CheckConstraint(name="cronoq_dependency_other", condition=~Q(run=models.F("prerequisite"))),
        )
        indexes = (
            models.Index(name="cronoq_dependency_open", fields=["prerequisite"], condition=Q(settled_at__isnull=True)),
            models.Index(name="cronoq_dependency_waits", fields=["run"], condition=Q(settled_at__isnull=True)),
        )

    def __str__(self) -> str:
        return f"{self.run_id} after {self.prerequisite_id}"
