"""Workers: which processes execute runs, and which have gone silent."""

from typing import Any

from django.contrib import admin
from django.db.models import DurationField, ExpressionWrapper, F, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from cronoq_django.admin.display import badge, clock, column, duration, json_text, moment
from cronoq_django.admin.page import ReadOnlyPage
from cronoq_django.admin.run import PAYLOAD
from cronoq_django.conf import conf
from cronoq_django.models import Run, Worker
from cronoq_django.models.choices import Status, WorkerStatus

# By the database's clock, which the heartbeats are written with.
SILENCE = ExpressionWrapper(Now() - F("last_heartbeat_at"), output_field=DurationField())


@admin.register(Worker)
class WorkerAdmin(ReadOnlyPage):
    """Written by the workers themselves; the leader marks the lost ones."""

    change_form_template = "admin/cronoq/worker/change_form.html"
    list_display = ("name", "state", "served", "running", "host", "process", "started_clock", "heartbeat_clock")
    list_filter = ("status",)
    search_fields = ("name", "host")
    fields = ("name", "state", "served", "concurrency", "host", "process", "version", "started", "heartbeat", "knows")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        workers: QuerySet[Worker] = super().get_queryset(request).annotate(silence=SILENCE)
        return workers

    process = column(_("process"), lambda worker: str(worker.process_id))  # a name, so not 12,345
    started = column(_("started"), lambda worker: moment(worker.started_at))
    heartbeat = column(
        _("last heartbeat"), lambda worker: moment(worker.last_heartbeat_at), ordering="last_heartbeat_at"
    )
    started_clock = column(_("started"), lambda one: clock(one.started_at), ordering="started_at")
    heartbeat_clock = column(_("heartbeat"), lambda one: clock(one.last_heartbeat_at), ordering="last_heartbeat_at")
    knows = column(_("scripts"), lambda worker: ", ".join(worker.scripts))

    @admin.display(description=_("status"), ordering="status")
    def state(self, worker: Any) -> SafeString:
        living = worker.status in (WorkerStatus.ONLINE, WorkerStatus.DRAINING)
        if living and worker.silence > conf().lease:
            return badge("lost", _now("no heartbeat for %s") % duration(worker.silence))
        if worker.status == WorkerStatus.ONLINE and worker.drain_requested_at:
            return badge("draining", _("asked to drain"))
        return badge(worker.status, worker.get_status_display())

    @admin.display(description=_("pools"))
    def served(self, worker: Worker) -> str:
        if not isinstance(worker.pools, dict):
            return json_text(worker.pools)
        return ", ".join(f"{pool} {concurrency}" for pool, concurrency in worker.pools.items())

    def add_context(self, request: HttpRequest, obj: Worker, context: dict[str, Any]) -> None:
        running = Run.objects.using(conf().database).filter(worker=obj.pk, status=Status.RUNNING)
        context["runs"] = [(run, moment(run.started_at)) for run in running.defer(*PAYLOAD).order_by("id")[:100]]
