"""Pools: the named queues, and whether workers may begin anything from them."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from cronoq_django.admin.display import badge
from cronoq_django.admin.page import Page
from cronoq_django.models import Pool


@admin.register(Pool)
class PoolAdmin(Page):
    """Rows are made by the leader, for each pool that code or jobs name; so none is added or deleted here."""

    list_display = ("name", "state", "description")
    search_fields = ("name", "description")
    fields = ("name", "state", "description")
    readonly_fields = ("name", "state")
    actions = ("pause", "resume")
    buttons = {"pause": _("Pause"), "resume": _("Resume")}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def offers(self, obj: Pool, button: str) -> bool:
        return obj.paused == (button == "resume")

    def save_model(self, request: HttpRequest, obj: Pool, form: Any, change: bool) -> None:
        obj.save(update_fields=form.changed_data)  # a pause pressed meanwhile stays

    @admin.display(description=_("state"), ordering="paused")
    def state(self, pool: Pool) -> SafeString:
        return badge("paused", _("paused")) if pool.paused else badge("online", _("served"))

    @admin.action(description=_("Pause: workers begin nothing new from the selected pools"), permissions=["change"])
    def pause(self, request: HttpRequest, pools: QuerySet[Pool]) -> None:
        count = pools.filter(paused=False).update(paused=True)
        self.message_user(request, ngettext("%d pool is paused.", "%d pools are paused.", count) % count)

    @admin.action(description=_("Resume the selected pools"), permissions=["change"])
    def resume(self, request: HttpRequest, pools: QuerySet[Pool]) -> None:
        count = pools.filter(paused=True).update(paused=False)
        self.message_user(request, ngettext("%d pool is served again.", "%d pools are served again.", count) % count)
