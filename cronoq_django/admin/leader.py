"""The leader: who turns time into runs, who stands by, and how each of its duties goes."""

from typing import Any

from django.contrib import admin
from django.db.models import DurationField, ExpressionWrapper, F, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from cronoq_django.admin.display import badge, column, duration, json_text, moment
from cronoq_django.admin.page import ReadOnlyPage
from cronoq_django.conf import conf
from cronoq_django.models import Coordinator, Leader, LeaderTerm, Stage


@admin.register(Leader)
class LeaderAdmin(ReadOnlyPage):
    """One row, so its list leads straight to it."""

    change_form_template = "admin/cronoq/leader/change_form.html"
    list_display = ("host", "epoch", "state")
    fields = ("state", "host", "epoch", "since", "heartbeat", "takeover", "backend")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Leader]:
        age = ExpressionWrapper(Now() - F("renewed_at"), output_field=DurationField())
        leaders: QuerySet[Leader] = super().get_queryset(request).annotate(age=age)
        return leaders

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        leader = self.get_queryset(request).first()
        if leader is None:  # nobody has ever led: the empty list says so
            return super().changelist_view(request, extra_context)
        return HttpResponseRedirect(reverse("admin:cronoq_leader_change", args=[leader.pk]))

    since = column(_("leading since"), lambda leader: moment(leader.acquired_at))
    heartbeat = column(_("last heartbeat"), lambda leader: _now("%s ago") % duration(leader.age))
    takeover = column(_("replaced after"), lambda leader: _now("%s without a heartbeat") % duration(leader.ttl))
    backend = column(_("database session"), lambda leader: str(leader.backend_pid))

    @admin.display(description=_("state"))
    def state(self, leader: Any) -> SafeString:
        if leader.age > leader.ttl:
            return badge("lost", _now("nobody leads: no heartbeat for %s") % duration(leader.age))
        return badge("leading", _("leading"))

    def add_context(self, request: HttpRequest, obj: Leader, context: dict[str, Any]) -> None:
        alias = conf().database
        context["coordinators"] = [
            (one, badge(one.status, one.get_status_display()), moment(one.started_at), moment(one.last_heartbeat_at))
            for one in Coordinator.objects.using(alias).defer("declares")[:20]
        ]
        context["stages"] = [
            (one, moment(one.last_run_at), duration(one.duration), moment(one.error_at))
            for one in Stage.objects.using(alias)
        ]
        context["terms"] = [
            (one, moment(one.from_at), moment(one.until_at), json_text(one.recovered) if one.recovered else "")
            for one in LeaderTerm.objects.using(alias)[:20]
        ]
