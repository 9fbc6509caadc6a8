"""Script: a task function that some process of this cluster registered."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import CleanTextField


class Script(models.Model):
    """A script's name and signature, as last seen in running code."""

    name = CleanTextField(_("name"), max_length=500, primary_key=True)
    signature = CleanTextField(_("signature"), max_length=4000)
    signature_hash = CleanTextField(_("signature hash"), max_length=64)
    doc = CleanTextField(_("documentation"), blank=True, default="", db_default="")
    first_seen_at = models.DateTimeField(_("first seen"), db_default=Now())
    last_seen_at = models.DateTimeField(_("last seen"), db_default=Now())

    class Meta:
        db_table = "cronoq_script"
        verbose_name = _("script")
        verbose_name_plural = _("scripts")
        ordering = ("name",)

    def __str__(self) -> str:
        return str(self.name)
