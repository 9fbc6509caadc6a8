"""PartitionAssignment: which coordinator ticks which of the 64 partitions."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

PARTITIONS = 64


class PartitionAssignment(models.Model):
    """One partition's coordinator, under a lease and an epoch of its own."""

    partition = models.PositiveSmallIntegerField(_("partition"), primary_key=True)
    coordinator = models.UUIDField(_("coordinator"), null=True, blank=True)
    epoch = models.BigIntegerField(_("epoch"), default=0, db_default=0)
    lease_expires_at = models.DateTimeField(_("lease expires"), null=True, blank=True)
    updated_at = models.DateTimeField(_("updated"), db_default=Now())

    class Meta:
        db_table = "cronoq_partition_assignment"
        verbose_name = _("partition assignment")
        verbose_name_plural = _("partition assignments")
        ordering = ("partition",)
        constraints = (models.CheckConstraint(name="cronoq_partition_range", condition=Q(partition__lt=PARTITIONS)),)

    def __str__(self) -> str:
        return str(self.partition)
