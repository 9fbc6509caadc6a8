"""Filters that cost what they show: none looks at distinct values of a table of millions."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from cronoq_django.conf import conf
from cronoq_django.models import Pool
from cronoq_django.models.choices import OPEN, TERMINAL

NEVER = admin.ShowFacets.NEVER  # facets count every choice of every filter


class PoolFilter(admin.SimpleListFilter):
    """By pool, of those that have a row. Django's own filter would read the whole table for them."""

    title = _("pool")
    parameter_name = "pool"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in Pool.objects.using(conf().database).values_list("name", flat=True)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(pool=self.value()) if self.value() else queryset


class FinishedWithin(admin.SimpleListFilter):
    """Of the runs that ended, those of the last day unless told otherwise. Open ones are always shown."""

    title = _("finished within")
    parameter_name = "within"
    spans = {
        "hour": (_("the last hour"), timedelta(hours=1)),
        "day": (_("the last day"), timedelta(days=1)),
        "week": (_("the last week"), timedelta(weeks=1)),
        "all": (_("any time"), None),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(key, label) for key, (label, _span) in self.spans.items()]

    def value(self) -> str:
        given = super().value()
        return given if given in self.spans else "day"

    def choices(self, changelist: Any) -> Iterator[Any]:
        for key, label in self.lookup_choices:
            link = changelist.get_query_string({self.parameter_name: key})
            yield {"selected": self.value() == key, "query_string": link, "display": label}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        span, status = self.spans[self.value()][1], request.GET.get("status__exact")
        if span is None or status in OPEN:
            return queryset
        wanted = Q(finished_at__gte=timezone.now() - span)
        if status not in TERMINAL:
            for each in OPEN:
                wanted |= Q(status=each)  # one by one, as each has its partial index
        return queryset.filter(wanted)
