"""What a job's page leads to: running it now with other arguments, and its revisions."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from cronoq_django.admin.display import json_text, link, moment
from cronoq_django.admin.job_form import JsonText
from cronoq_django.admin.page import Page
from cronoq_django.admin.run import short
from cronoq_django.errors import CronoqError, NotFound
from cronoq_django.models import Job
from cronoq_django.store import get_job, rollback_job, run_job_now
from cronoq_django.store.revisions import changes, get_revision


class ArgumentsForm(forms.Form):
    """The arguments of one run."""

    args = JsonText(label=_("Positional arguments"), required=False)  # an empty list would count as missing
    kwargs = JsonText(label=_("Named arguments"), required=False)

    def clean(self) -> dict[str, Any]:
        for name, wanted, told in (
            ("args", list, _("Must be a JSON list.")),
            ("kwargs", dict, _("Must be a JSON object.")),
        ):
            if name in self.cleaned_data and not isinstance(self.cleaned_data[name], wanted):
                self.add_error(name, told)
        return self.cleaned_data


class JobPages(Page):
    """The pages, each with its own permission."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("<path:object_id>/run/", view(self.run_with), name="cronoq_job_run_with"),
            path("<path:object_id>/revision/<int:number>/", view(self.revision), name="cronoq_job_revision"),
            *super().get_urls(),
        ]

    def run_with(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Run a job now, with arguments for this one time."""
        job = self._job(request, object_id)
        if not self.has_run_permission(request):  # type: ignore[attr-defined]
            raise PermissionDenied
        form = ArgumentsForm(request.POST or None, initial={"args": job.args, "kwargs": job.kwargs})
        if request.method == "POST" and form.is_valid():
            given = form.cleaned_data
            try:
                run = run_job_now(job.pk, args=given["args"], kwargs=given["kwargs"], actor=request.user.get_username())
            except (CronoqError, TypeError, ValueError) as error:
                form.add_error("kwargs", str(error))
            else:
                text = format_html(_now("“{}” runs now: {}"), job.name, link("run", run, _now("run %s") % short(run)))
                self.message_user(request, text, messages.SUCCESS)
                return HttpResponseRedirect(reverse("admin:cronoq_job_change", args=[job.pk]))
        return self._page(request, "run_with", job, title=_("Run now with other arguments"), form=form)

    def revision(self, request: HttpRequest, object_id: str, number: int) -> HttpResponse:
        """What a revision changed, what has changed since, and the way back."""
        job = self._job(request, object_id)
        try:
            this = get_revision(job.pk, number)
            if request.method == "POST":
                if not self.has_change_permission(request, job):
                    raise PermissionDenied
                return self._roll_back(request, job, number)
            before = get_revision(job.pk, number - 1) if number > 1 else None
        except NotFound as error:
            raise Http404(str(error)) from error
        return self._page(
            request,
            "revision",
            job,
            title=_("Revision %d") % number,
            number=number,
            changed=moment(this.changed_at),
            changed_by=this.changed_by,
            changes=_rows(changes(before, this)),
            since=_rows(changes(this, get_revision(job.pk, job.revision))) if number != job.revision else [],
            may_roll_back=self.has_change_permission(request, job),
        )

    def _roll_back(self, request: HttpRequest, job: Job, number: int) -> HttpResponse:
        try:
            rollback_job(job.pk, number, actor=request.user.get_username())
        except ValidationError as error:
            told = "; ".join(f"{field}: {' '.join(why)}" for field, why in error.message_dict.items())
            self.message_user(request, _now("That can't be had any more: %s") % told, messages.ERROR)
            return HttpResponseRedirect(reverse("admin:cronoq_job_revision", args=[job.pk, number]))
        self.message_user(
            request, _now("“%(job)s” is what it was at revision %(number)d.") % {"job": job, "number": number}
        )
        return HttpResponseRedirect(reverse("admin:cronoq_job_change", args=[job.pk]))

    def _job(self, request: HttpRequest, object_id: str) -> Job:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        try:
            return get_job(self.model._meta.pk.to_python(object_id))
        except (NotFound, ValidationError) as error:
            raise Http404(str(error)) from error

    def _page(self, request: HttpRequest, name: str, job: Job, **context: Any) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "job": job,
            **context,
        }
        return TemplateResponse(request, f"admin/cronoq/job/{name}.html", context)


def _rows(found: list[Any]) -> list[tuple[str, str, str]]:
    names = {field.attname: str(field.verbose_name) for field in Job._meta.concrete_fields}
    return [(names[one.column], _said(one.before), _said(one.after)) for one in found]


def _said(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json_text(value)
