"""The Django app. Loading it starts nothing: leaders and workers run in their own commands."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class CronoqConfig(AppConfig):
    """Label `cronoq`: tables are cronoq_…, permissions cronoq.…"""

    name = "cronoq_django"
    label = "cronoq"
    verbose_name = _("Jobs and runs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from cronoq_django import checks  # noqa: F401, PLC0415  (registers them)
