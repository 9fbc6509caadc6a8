"""Runs: what was done, is being done and waits; retry and cancel. Read-only, and fast on millions of rows."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from cronoq_django.admin.display import NOTHING, badge, clock, column, duration, link, moment, stored_json
from cronoq_django.admin.filters import FinishedWithin, PoolFilter
from cronoq_django.admin.page import AT_ONCE, ReadOnlyPage
from cronoq_django.admin.paginator import BoundedPaginator
from cronoq_django.conf import conf
from cronoq_django.errors import NotFound
from cronoq_django.models import Attempt, Dependency, Job, Run, RunDetail, Worker
from cronoq_django.models.choices import OPEN, TERMINAL, Reason, Status
from cronoq_django.store.controls import cancel_runs, retry_runs

PAYLOAD = ("args", "kwargs", "result", "error", "backoff")  # up to a megabyte a row: no list reads them
NEWEST = 100  # related rows shown on a page


@admin.register(Run)
class RunAdmin(ReadOnlyPage):
    """Newest first: ids increase with time, so a page is a walk along the primary key."""

    change_form_template = "admin/cronoq/run/change_form.html"
    list_display = ("short_id", "what", "outcome", "due_clock", "started_clock", "took", "tries", "executor")
    list_display_links = ("short_id", "what")
    list_filter = (FinishedWithin, "status", PoolFilter, "trigger")
    ordering = ("-id",)
    sortable_by = ()
    search_fields = ("job_name__contains", "script__contains")
    search_help_text = _("A part of the job's or the script's name, or a run's whole id.")
    paginator = BoundedPaginator
    show_full_result_count = False
    actions = ("retry", "cancel")
    buttons = {"retry": _("Retry"), "cancel": _("Cancel")}
    fieldsets = (
        (
            None,
            {"fields": ("state", "why", "job_link", "script", "made_by", "retry_link", "parent_link", "key", "tags")},
        ),
        (_("When"), {"fields": ("slot", "created", "due", "expires", "started", "finished", "took", "cancel_asked")}),
        (_("Execution"), {"fields": ("tries", "executor", "lease", "pool", "priority", "limit")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        return super().get_queryset(request).select_related("worker").defer(*PAYLOAD)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[QuerySet[Run], bool]:
        try:
            wanted = UUID(search_term.strip())
        except ValueError:
            return super().get_search_results(request, queryset, search_term)
        return self.get_queryset(request).filter(pk=wanted).order_by("-id"), False  # whatever the filters say

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Only what this run has."""

        def has(name: Any) -> bool:
            value = getattr(self, name)(obj) if hasattr(self, name) else getattr(obj, name)
            return value not in (None, "", NOTHING)

        return [(title, {"fields": list(filter(has, options["fields"]))}) for title, options in self.fieldsets]

    # Permissions of the actions

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("cronoq.retry_run")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("cronoq.cancel_run")

    def offers(self, obj: Run, button: str) -> bool:
        return obj.status in (TERMINAL if button == "retry" else OPEN)

    # Actions

    @admin.action(description=_("Retry the selected runs, those that have ended"), permissions=["retry"])
    def retry(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        ids = self._some(request, runs)
        try:
            made = retry_runs(ids, actor=request.user.get_username())
        except (NotFound, TypeError, ValueError) as error:
            self.message_user(request, _now("Nothing was retried: %s") % error, messages.ERROR)
            return
        if made:
            text = ngettext("%d new run:", "%d new runs:", len(made)) % len(made)
            links = format_html_join(", ", "{}", ((link("run", new, short(new)),) for new in list(made.values())[:10]))
            more = "…" if len(made) > 10 else ""
            self.message_user(request, format_html("{} {}{}", text, links, more), messages.SUCCESS)
        if left := len(ids) - len(made):
            text = ngettext("%d is still open: left alone.", "%d are still open: left alone.", left)
            self.message_user(request, text % left, messages.WARNING)

    @admin.action(description=_("Cancel the selected runs…"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, runs: QuerySet[Run]) -> HttpResponse | None:
        ids = self._some(request, runs)
        if not request.POST.get("confirmed"):
            return self._ask(request, ids)
        done = cancel_runs(ids, actor=request.user.get_username())
        told = (
            (ngettext("%d run was cancelled.", "%d runs were cancelled.", done.cancelled), done.cancelled),
            (ngettext("%d was asked to stop.", "%d were asked to stop.", done.requested), done.requested),
            (ngettext("%d could not be cancelled.", "%d could not be cancelled.", done.ended), done.ended),
            (ngettext("%d is busy: try again.", "%d are busy: try again.", done.busy), done.busy),
        )
        level = messages.SUCCESS if done.cancelled or done.requested else messages.WARNING
        self.message_user(request, " ".join(text % count for text, count in told if count), level)
        here = reverse("admin:cronoq_run_change", args=ids) if len(ids) == 1 else reverse("admin:cronoq_run_changelist")
        return HttpResponseRedirect(here)

    def _ask(self, request: HttpRequest, ids: Sequence[UUID]) -> HttpResponse:
        rows = self.get_queryset(request).filter(pk__in=ids).order_by("-id")
        context = {
            **self.admin_site.each_context(request),
            "title": _("Cancel runs"),
            "opts": self.opts,
            "media": self.media,
            "runs": [(run, self.state(run)) for run in rows],
            # Not the filtered list they were chosen from: a queued run may be running by now.
            "action_url": reverse("admin:cronoq_run_changelist") + "?within=all",
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/cronoq/run/cancel_confirmation.html", context)

    def _some(self, request: HttpRequest, runs: QuerySet[Run]) -> list[UUID]:
        """The ids, newest first, of as many as one action takes."""
        ids = list(runs.order_by("-id").values_list("pk", flat=True)[: AT_ONCE + 1])
        if len(ids) > AT_ONCE:
            self.message_user(request, _now("Only the newest %d are taken at a time.") % AT_ONCE, messages.WARNING)
        return ids[:AT_ONCE]

    # Columns and fields

    short_id = column(_("id"), lambda run: format_html('<code title="{}">{}</code>', run.pk, short(run.pk)))
    what = column(_("job or script"), lambda run: run.job_name or _last_part(run.script))
    state = column(_("status"), lambda run: badge(run.status, run.get_status_display()))
    outcome = column(_("status"), lambda run: badge_and_reason(run.status, run.reason))
    why = column(_("reason"), lambda run: Reason(run.reason).label if run.reason else "")
    made_by = column(_("made by"), lambda run: f"{run.get_trigger_display()} {run.actor and f'({run.actor})'}")
    created = column(_("created"), lambda run: moment(run.created_at))
    due = column(_("due"), lambda run: moment(run.due_at))
    due_clock = column(_("due"), lambda run: clock(run.due_at))
    started_clock = column(_("started"), lambda run: clock(run.started_at))
    expires = column(_("expires"), lambda run: moment(run.expires_at))
    started = column(_("started"), lambda run: moment(run.started_at))
    finished = column(_("ended"), lambda run: moment(run.finished_at))
    cancel_asked = column(_("cancel requested"), lambda run: moment(run.cancel_requested_at))
    lease = column(_("lease until"), lambda run: moment(run.lease_expires_at))
    limit = column(_("timeout"), lambda run: duration(run.timeout))
    executor = column(_("worker"), lambda run: worker_link(run))  # noqa: PLW0108  (it is defined below)
    job_link = column(_("job"), lambda run: reference(Job, run.job_id, run.job_name))
    retry_link = column(_("retry of"), lambda run: reference(Run, run.retry_of_id))
    parent_link = column(_("made by the run"), lambda run: reference(Run, run.parent_id))

    @admin.display(description=_("attempts"))
    def tries(self, run: Run) -> str:
        return _now("%(made)d of %(allowed)d") % {"made": run.attempts, "allowed": run.max_attempts}

    @admin.display(description=_("slot"))
    def slot(self, run: Run) -> str:
        if run.scheduled_for is None or run.started_at is None:
            return moment(run.scheduled_for)
        late = _now("begun %s later") % duration(run.started_at - run.scheduled_for)
        return format_html("{}, {}", moment(run.scheduled_for), late)

    @admin.display(description=_("duration"))
    def took(self, run: Run) -> str:
        if run.started_at is not None and run.finished_at is not None:
            return duration(run.finished_at - run.started_at)
        if run.started_at is not None and run.status == Status.RUNNING:
            return _now("%s so far") % duration(timezone.now() - run.started_at)
        return NOTHING

    def add_context(self, request: HttpRequest, obj: Run, context: dict[str, Any]) -> None:
        alias = conf().database
        # As text: a value that Python can't read must not take the page away.
        columns = [Cast(name, TextField()) for name in PAYLOAD]
        stored = Run.objects.using(alias).filter(pk=obj.pk).values_list(*columns).first() or [None] * len(PAYLOAD)
        texts = dict(zip(PAYLOAD, stored, strict=True))
        context["error"] = texts.pop("error")
        titles = {field.name: field.verbose_name for field in Run._meta.fields}
        context["values"] = [(titles[name], shown) for name in texts if (shown := stored_json(texts[name]))]
        attempts = Attempt.objects.using(alias).filter(run=obj.pk).select_related("worker").order_by("id")[:NEWEST]
        context["attempts"] = [
            {
                "is": one,
                "outcome": badge(one.outcome, one.get_outcome_display()),
                "worker": worker_link(one),
                "started": moment(one.started_at),
                "ended": moment(one.ended_at),
                "took": duration(one.ended_at - one.started_at),
            }
            for one in attempts
        ]
        context["detail"] = RunDetail.objects.using(alias).filter(pk=obj.pk).first()
        dependencies = Dependency.objects.using(alias)
        waits_for = dependencies.filter(run=obj.pk).values("prerequisite")
        awaited_by = dependencies.filter(prerequisite=obj.pk, settled_at=None).values("run")  # as the index has them
        related = (
            (_("Waits for"), {"pk__in": waits_for}),
            (_("Wait for this one"), {"pk__in": awaited_by}),
            (_("Runs made by this one"), {"parent": obj.pk}),
        )
        context["related"] = [
            (title, [(run, self.state(run), self.due(run)) for run in runs])
            for title, which in related
            if (runs := self.get_queryset(request).filter(**which).order_by("id")[:NEWEST])
        ]


def short(run_id: UUID) -> str:
    """The end of an id: its beginning is the time, alike for all runs of a minute."""
    return run_id.hex[-8:]


def badge_and_reason(status: str, reason: str) -> SafeString:
    """The status in its colour, and why a run ended so."""
    why = Reason(reason).label if reason else ""
    return format_html('{} <small class="quiet">{}</small>', badge(status, Status(status).label), why)


def _last_part(script: str) -> SafeString:
    return format_html('<span title="{}">{}</span>', script, script.rpartition(".")[2] or script)


def reference(model: type[Job | Run | Worker], pk: UUID | None, text: str = "") -> str:
    """A link to a row that may be gone."""
    if pk is None:
        return text
    text = text or (short(pk) if model is Run else str(pk))
    if model._default_manager.using(conf().database).filter(pk=pk).exists():
        return link(str(model._meta.model_name), pk, text)
    return format_html('{} <span class="quiet">({})</span>', text, _("gone"))


def worker_link(row: Run | Attempt) -> str:
    """The worker that was joined to the row, if it is still known."""
    if row.worker_id is None:
        return NOTHING
    if row.worker is None:
        return format_html('<span class="quiet" title="{}">{}</span>', row.worker_id, _("gone"))
    return link("worker", row.worker_id, row.worker.name)
