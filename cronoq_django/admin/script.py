"""Scripts: what the code of this cluster can run, as last seen."""

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from cronoq_django.admin.display import column, moment
from cronoq_django.admin.page import ReadOnlyPage
from cronoq_django.models import Script

TEXT = '<pre class="cronoq-text">{}</pre>'


@admin.register(Script)
class ScriptAdmin(ReadOnlyPage):
    """Written by leader and workers when they start."""

    list_display = ("name", "call", "last_seen")
    search_fields = ("name",)
    fields = ("name", "call", "documentation", "first_seen", "last_seen")

    call = column(_("arguments"), lambda script: format_html("<code>{}</code>", script.signature))
    documentation = column(_("documentation"), lambda script: format_html(TEXT, script.doc))
    first_seen = column(_("first seen"), lambda script: moment(script.first_seen_at))
    last_seen = column(_("last seen"), lambda script: moment(script.last_seen_at), ordering="last_seen_at")
