"""Jobs: when what is due, what became of it, and changing it."""

import logging
from contextlib import nullcontext
from datetime import tzinfo
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminTextInputWidget
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from cronoq_django import registry
from cronoq_django.admin.display import NOTHING, badge, column, in_zone, json_text, link, moment, problem
from cronoq_django.admin.filters import PoolFilter
from cronoq_django.admin.job_form import JobForm, JsonText
from cronoq_django.admin.job_pages import JobPages
from cronoq_django.admin.page import AT_ONCE
from cronoq_django.admin.run import PAYLOAD, RunAdmin, badge_and_reason, short
from cronoq_django.conf import conf
from cronoq_django.errors import CronoqError
from cronoq_django.models import Job, JobRevision, Pool, Run
from cronoq_django.models.choices import Source, Trigger
from cronoq_django.models.fields import CleanTextField, JsonField
from cronoq_django.schedules import ScheduleError, preview, zone
from cronoq_django.schedules.zones import names as zone_names
from cronoq_django.store.jobs import acting, pause_job, resume_job, run_job_now

logger = logging.getLogger("cronoq.admin")

SHOWN = 10  # runs, revisions
# Found by the index that keeps a slot from being fired twice.
LAST = Run.objects.filter(job=OuterRef("pk"), trigger=Trigger.SLOT).order_by("-scheduled_for")


@admin.register(Job)
class JobAdmin(JobPages):
    """People change jobs here; what the scheduler remembers of them is shown beside, and never posted."""

    form = JobForm
    formfield_overrides = {CleanTextField: {"widget": AdminTextInputWidget}, JsonField: {"form_class": JsonText}}
    list_display = ("name", "schedule_words", "next_slot", "last_slot", "enabled", "managed_by", "pool")
    list_filter = ("enabled", "source", "kind", PoolFilter)
    search_fields = ("name", "script")
    readonly_fields = ("managed_by",)
    actions = ("run_now", "pause", "resume")
    buttons = {"run_now": _("Run now"), "pause": _("Pause"), "resume": _("Resume")}
    fieldsets = (
        (_("What"), {"fields": ("name", "description", "script", "args", "kwargs", "enabled", "managed_by")}),
        (
            _("When"),
            {
                "fields": (
                    "kind",
                    ("cron", "timezone"),
                    ("every", "anchor"),
                    "run_at",
                    ("starts_at", "ends_at"),
                    "jitter",
                    ("dst_gap", "dst_repeat"),
                )
            },
        ),
        (
            _("How"),
            {
                "fields": (
                    ("pool", "priority"),
                    ("timeout", "max_attempts"),
                    "backoff",
                    ("overlap", "concurrency"),
                    ("misfire", "misfire_window", "misfire_limit"),
                    "pause_on_failure",
                )
            },
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        jobs: QuerySet[Job] = super().get_queryset(request).select_related("state").defer("args", "kwargs", "backoff")
        return jobs.annotate(**{f"last_{name}": Subquery(LAST.values(name)[:1]) for name in ("id", "status", "reason")})

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Job | None:
        found = super().get_object(request, object_id, from_field)
        if found is None:
            return None
        jobs = Job.objects.using(conf().database).select_related("state")
        if request.method == "POST":  # what the form is compared with stays so until it is saved
            jobs = jobs.select_for_update(no_key=True, of=("self",))
        return jobs.filter(pk=found.pk).first()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Those who may only view see JSON instead of Python."""
        if obj is None or self.has_change_permission(request, obj):
            return self.fieldsets
        as_text: dict[Any, Any] = {"args": "args_text", "kwargs": "kwargs_text", "backoff": "backoff_text"}
        return [
            (title, {"fields": [as_text.get(name, name) for name in fields["fields"]]})
            for title, fields in self.fieldsets
        ]

    # Permissions of the actions

    def has_run_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("cronoq.run_job")

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("cronoq.pause_job")

    def offers(self, obj: Job, button: str) -> bool:
        return button == "run_now" or obj.enabled == (button == "pause")

    # Changing, in the name of the user

    def _acting(self, request: HttpRequest) -> Any:
        if request.method != "POST":
            return nullcontext()
        return acting(request.user.get_username())

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with self._acting(request):
            return super().changeform_view(request, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with self._acting(request):
            return super().delete_view(request, *args, **kwargs)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        with self._acting(request):
            super().delete_queryset(request, queryset)

    def save_model(self, request: HttpRequest, obj: Job, form: Any, change: bool) -> None:
        if not change:
            obj.save(using=conf().database)
            return
        columns = list(form.changed_data)
        if obj.source == Source.CODE and set(columns) - {"enabled"}:
            obj.source = Source.ADMIN
            columns.append("source")
            self.message_user(request, _now("“%s” is managed here from now on; the code no longer changes it.") % obj)
        if columns:
            obj.save(using=conf().database, update_fields=columns)

    # Actions

    @admin.action(description=_("Run the selected jobs now"), permissions=["run"])
    def run_now(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        for pk, name in jobs.values_list("pk", "name")[:AT_ONCE]:
            try:
                run = run_job_now(pk, actor=request.user.get_username())
            except (CronoqError, TypeError, ValueError) as error:
                text = format_html(_now("“{}” was not run: {}"), name, error)
                self.message_user(request, text, messages.ERROR)
            else:
                text = format_html(_now("“{}” runs now: {}"), name, link("run", run, _now("run %s") % short(run)))
                self.message_user(request, text, messages.SUCCESS)

    @admin.action(description=_("Pause the selected jobs"), permissions=["pause"])
    def pause(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        ids = list(jobs.filter(enabled=True).values_list("pk", flat=True))
        for pk in ids:
            pause_job(pk, actor=request.user.get_username())
        text = ngettext("%d job is paused until it is resumed.", "%d jobs are paused until they are resumed.", len(ids))
        self.message_user(request, text % len(ids), messages.SUCCESS)

    @admin.action(description=_("Resume the selected jobs"), permissions=["pause"])
    def resume(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        ids = list(jobs.filter(enabled=False).values_list("pk", flat=True))
        for pk in ids:
            resume_job(pk, actor=request.user.get_username())
        text = ngettext("%d job is resumed.", "%d jobs are resumed.", len(ids))
        self.message_user(request, text % len(ids), messages.SUCCESS)

    # Columns

    @admin.display(description=_("schedule"))
    def schedule_words(self, job: Job) -> str:
        try:
            return job.schedule.explain()
        except Exception as error:  # whatever the row holds, the list must show it
            return problem(error)

    @admin.display(description=_("managed by"), ordering="source")
    def managed_by(self, job: Job) -> str:
        return str(job.get_source_display())

    @admin.display(description=_("next slot"), ordering="state__next_run_at")
    def next_slot(self, job: Job) -> str:
        state = getattr(job, "state", None)
        if state is not None and state.error:
            return problem(state.error)
        if not job.enabled:
            return badge("paused", _("paused"))
        return in_zone(state.next_run_at, zone_of(job)) if state else NOTHING

    @admin.display(description=_("last slot"), ordering="state__last_slot")
    def last_slot(self, job: Any) -> str:
        state = getattr(job, "state", None)
        slot = in_zone(state.last_slot, zone_of(job)) if state else NOTHING
        if job.last_id is None:
            return slot
        return format_html(
            "{}<br>{}", slot, link("run", job.last_id, badge_and_reason(job.last_status, job.last_reason))
        )

    args_text = column(_("positional arguments"), lambda job: json_text(job.args))
    kwargs_text = column(_("named arguments"), lambda job: json_text(job.kwargs))
    backoff_text = column(_("backoff"), lambda job: json_text(job.backoff))

    # The detail page

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        pools = Pool.objects.using(conf().database).values_list("name", flat=True)
        context["choices"] = {"script": known_scripts(), "timezone": sorted(zone_names()), "pool": pools}
        return super().render_change_form(request, context, *args, **kwargs)

    def add_context(self, request: HttpRequest, obj: Job, context: dict[str, Any]) -> None:
        stored = self.get_queryset(request).filter(pk=obj.pk).first()  # `obj` may hold a refused form's values
        if stored is None:
            return
        context["job"], context["state"] = stored, getattr(stored, "state", None)
        context["may_run"] = self.has_run_permission(request)
        context["words"], context["by_code"] = self.schedule_words(stored), stored.source == Source.CODE
        context["next_slot"], context["last_slot"] = self.next_slot(stored), self.last_slot(stored)
        try:
            coming = preview(stored.terms, timezone.now(), count=5)
            context["slots"] = [(in_zone(one.slot, zone_of(stored)), one.note) for one in coming]
        except Exception as error:  # as in the list
            context["slots_problem"] = str(error)
        if request.user.has_perm("cronoq.view_run"):
            context["runs"] = recent_runs(stored, self.admin_site)
        revisions = JobRevision.objects.using(conf().database).filter(job=obj.pk).defer("snapshot")[:SHOWN]
        context["revisions"] = [(one.number, moment(one.changed_at), one.changed_by) for one in revisions]


def zone_of(job: Job) -> tzinfo | None:
    """The job's zone; None if it is no more."""
    try:
        return zone(job.timezone)
    except ScheduleError:
        return None


def recent_runs(job: Job, site: admin.AdminSite) -> list[Any]:
    """The newest runs of a job, each kind by its own index: its slots', and those made by hand."""
    rows = Run.objects.using(conf().database).filter(job=job.pk).defer(*PAYLOAD).select_related("worker")
    slots = rows.filter(trigger=Trigger.SLOT).order_by("-scheduled_for")[:SHOWN]
    by_hand = rows.filter(trigger=Trigger.MANUAL).order_by("-id")[:SHOWN]
    newest = sorted([*slots, *by_hand], key=lambda run: run.created_at, reverse=True)[:SHOWN]
    page = RunAdmin(Run, site)
    return [
        {name: getattr(page, name)(run) for name in ("short_id", "outcome", "made_by", "started", "took", "tries")}
        | {"pk": run.pk, "slot": in_zone(run.scheduled_for, zone_of(job))}
        for run in newest
    ]


def known_scripts() -> list[str]:
    """The scripts that this process knows, to choose from."""
    try:
        registry.autodiscover()
    except Exception:  # one broken module of tasks must not take the page away
        logger.exception("Not every module of tasks could be imported.")
    return sorted(registry.scripts())
