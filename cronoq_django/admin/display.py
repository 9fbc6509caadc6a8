"""Values in words: badges, moments, durations, JSON, links."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from cronoq_django.models.fields import load_json

NOTHING = "–"
LONGEST = 100_000  # characters of one value on a page


def column(description: Any, show: Callable[[Any], Any], *, ordering: str | None = None) -> Any:
    """A column, or a read-only field, of an admin page: what `show` makes of a row."""
    return admin.display(description=description, ordering=ordering)(lambda _page, row: show(row))


def badge(kind: str, label: Any) -> SafeString:
    """A small coloured label; the style sheet knows the kinds."""
    return format_html('<span class="cronoq-badge cronoq-{}">{}</span>', kind, label)


def problem(text: Any) -> SafeString:
    """What is wrong, in the colour of errors."""
    return format_html('<span class="cronoq-problem">{}</span>', text)


def link(model: str, pk: Any, text: Any) -> SafeString:
    """A link to the detail page of one of our models."""
    return format_html('<a href="{}">{}</a>', reverse(f"admin:cronoq_{model}_change", args=[quote(pk)]), text)


def moment(value: datetime | None) -> SafeString | str:
    """A moment to the second, in the zone of the page; the UTC one as a tooltip."""
    if value is None:
        return NOTHING
    local = f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S}"
    return format_html('<time datetime="{}" title="{}">{}</time>', value.isoformat(), _utc(value), local)


def clock(value: datetime | None) -> SafeString | str:
    """A moment for a narrow column: today's to the second, older ones to the minute; the whole of it as a tooltip."""
    if value is None:
        return NOTHING
    local = timezone.localtime(value)
    text = f"{local:%H:%M:%S}" if local.date() == timezone.localdate() else f"{local:%Y-%m-%d %H:%M}"
    return format_html('<time datetime="{}" title="{}">{}</time>', value.isoformat(), _utc(value), text)


def in_zone(value: datetime | None, zone: tzinfo | None) -> SafeString | str:
    """A moment in a job's zone, and in UTC unless that is the same. No zone: in UTC alone."""
    if value is None:
        return NOTHING
    local = value.astimezone(zone or UTC)
    if not local.utcoffset():
        return format_html('<time datetime="{}">{}</time>', value.isoformat(), _utc(value))
    here = f"{_seconds(local)} {local.tzname()}"
    both = '<time datetime="{}">{}</time> <small class="quiet cronoq-utc">{}</small>'
    return format_html(both, value.isoformat(), here, _utc(value))


def duration(value: timedelta | None) -> str:
    """A duration as people say it: two units at most."""
    if value is None:
        return NOTHING
    seconds = value.total_seconds()
    if abs(seconds) < 60:
        return _("%s s") % (f"{seconds:.3f}" if abs(seconds) < 1 else f"{seconds:.1f}")
    sign, whole = ("−" if seconds < 0 else ""), abs(round(seconds))
    if whole < 3600:
        return sign + _("%(minutes)d min %(seconds)d s") % {"minutes": whole // 60, "seconds": whole % 60}
    if whole < 86400:
        return sign + _("%(hours)d h %(minutes)d min") % {"hours": whole // 3600, "minutes": whole % 3600 // 60}
    return sign + _("%(days)d d %(hours)d h") % {"days": whole // 86400, "hours": whole % 86400 // 3600}


def json_text(value: Any) -> str:
    """A value as JSON: on one line if that is short. What UTF-8 can't carry (lone surrogates) is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > 70:
        text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if text.isascii() or _encodable(text) else json.dumps(value, indent=2)


def stored_json(text: str | None) -> str:
    """JSON as the column has it, made readable where Python can read it. An empty list or object says nothing."""
    if text is None or text in ("[]", "{}"):
        return ""
    with suppress(ValueError, RecursionError):  # PostgreSQL holds numbers of 5,000 digits, and 10,000 levels
        text = json_text(load_json(text))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _utc(value: datetime) -> str:
    return f"{_seconds(value.astimezone(UTC))}Z"


def _seconds(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}" if value.second else f"{value:%Y-%m-%d %H:%M}"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
