"""What our pages share: the cluster's database, our style sheet, and actions that are buttons too."""

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse

from cronoq_django.admin.filters import NEVER
from cronoq_django.conf import conf

AT_ONCE = 500  # rows an action takes: "select all" may mean millions


class Page(admin.ModelAdmin):
    """A page of ours. `buttons` names the actions that its detail page offers, with their labels.

    Only Django 6.1 has actions on detail pages; this works alike on all. A button posts to a view of ours, which asks
    for the action's own permission and then calls it with the one row.
    """

    buttons: ClassVar[dict[str, Any]] = {}
    show_facets = NEVER
    list_per_page = 50

    class Media:
        css = {"all": ["cronoq/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(conf().database)

    def offers(self, obj: Any, button: str) -> bool:
        """Whether the button makes sense for this row now."""
        return True

    def get_urls(self) -> list[Any]:
        press = self.admin_site.admin_view(self.press)
        return [path("<path:object_id>/press/<slug:button>/", press, name=self._name("press")), *super().get_urls()]

    def press(self, request: HttpRequest, object_id: str, button: str) -> HttpResponse:
        """Do what a button says, if the user may."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if button not in self.buttons:
            raise Http404
        if not (self.has_view_or_change_permission(request) and self._may(request, button)):
            raise PermissionDenied
        try:
            rows = self.get_queryset(request).filter(pk=unquote(object_id))
        except ValidationError as error:
            raise Http404 from error
        if not rows.exists():
            raise Http404
        response: HttpResponse | None = getattr(self, button)(request, rows)
        return response or HttpResponseRedirect(reverse(f"admin:{self._name('change')}", args=[object_id]))

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if (obj := context.get("original")) is not None:
            context["buttons"] = [
                (reverse(f"admin:{self._name('press')}", args=[quote(obj.pk), name]), name, label)
                for name, label in self.buttons.items()
                if self._may(request, name) and self.offers(obj, name)
            ]
            self.add_context(request, obj, context)
        return super().render_change_form(request, context, *args, **kwargs)

    def add_context(self, request: HttpRequest, obj: Any, context: dict[str, Any]) -> None:
        """Whatever else the template of the detail page shows."""

    def _may(self, request: HttpRequest, action: str) -> bool:
        needed: list[str] = getattr(self, action).allowed_permissions
        return any(getattr(self, f"has_{permission}_permission")(request) for permission in needed)

    def _name(self, view: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{view}"


class ReadOnlyPage(Page):
    """A page of rows that leader and workers write: nobody else adds, changes or deletes them."""

    change_form_template = "admin/cronoq/facts.html"

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
