"""Pool: a named queue that workers serve with a concurrency."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.fields import CleanTextField


class Pool(models.Model):
    """A pool that code or jobs name. Its row is made by `sync`; a claim looks at `paused` each time."""

    name = CleanTextField(_("name"), max_length=100, primary_key=True)
    paused = models.BooleanField(
        _("paused"), default=False, db_default=False, help_text=_("Workers begin nothing new from a paused pool.")
    )
    description = CleanTextField(_("description"), max_length=2000, blank=True, default="", db_default="")

    class Meta:
        db_table = "cronoq_pool"
        verbose_name = _("pool")
        verbose_name_plural = _("pools")
        ordering = ("name",)

    def __str__(self) -> str:
        return str(self.name)
