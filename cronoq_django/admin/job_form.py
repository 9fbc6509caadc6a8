"""The form of a job: saves what its user changed, and refuses only where somebody else changed the same meanwhile.

It carries a fingerprint of each value as it was shown. A field that comes back as it was shown was not touched,
whatever has become of the column since; one that was touched is saved if the column is still as shown. Otherwise both
values are told, and saving again, now knowingly, overwrites. Scheduling state is no part of it.
"""

import json
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from cronoq_django.admin.display import json_text
from cronoq_django.models import Job
from cronoq_django.models.fields import Unreadable, dump_json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JsonText(forms.JSONField):
    """JSON that can be stored and shown. Django's field fails at 100,000 levels, and at numbers of 5,000 digits."""

    widget = AdminTextareaWidget(attrs={"rows": 3})

    def to_python(self, value: Any) -> Any:
        try:
            value = super().to_python(value)
            _refuse_deep(value)
            dump_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValidationError(_("This JSON can't be stored: %(why)s"), "invalid", {"why": error}) from error
        return value

    def bound_data(self, data: Any, initial: Any) -> Any:
        return InvalidJSONInput(data or "")  # as it was typed, valid or not

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, InvalidJSONInput | Unreadable) else "" if value is None else json_text(value)


class JobForm(forms.ModelForm):
    """See the top of this file."""

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Job
        fields = ()  # the admin page says which
        widgets = {
            "description": AdminTextareaWidget(attrs={"rows": 2}),
            "script": AdminTextInputWidget(attrs={"list": "cronoq-script"}),
            "timezone": AdminTextInputWidget(attrs={"list": "cronoq-timezone"}),
            "pool": AdminTextInputWidget(attrs={"list": "cronoq-pool"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            del self.fields["seen"]
        elif not self.is_bound:
            self.initial["seen"] = json.dumps(self._fingerprints())

    @cached_property
    def changed_data(self) -> list[str]:
        return super().changed_data if self.instance._state.adding else []  # see clean()

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        for name, value in list(values.items()):
            if isinstance(value, str):
                values[name] = value.replace("\r\n", "\n")  # as browsers send it, but nobody meant it
        for name, empty in {"args": list, "kwargs": dict, "jitter": timedelta}.items():
            if values.get(name, "") is None:
                values[name] = empty()
        if not self.instance._state.adding:
            self._merge(values)
        return values

    def _merge(self, values: dict[str, Any]) -> None:
        shown = self._shown()
        for name, theirs in self._fingerprints().items():
            if name not in values:
                continue  # refused already
            yours, before = _fingerprint(values[name]), shown.get(name, theirs)
            if yours in (before, theirs):
                values[name] = getattr(self.instance, name)
                continue
            self.changed_data.append(name)
            if theirs != before:
                self.add_error(name, self._conflict(name, values[name]))
                shown[name] = theirs  # told now: saving again means it
        posted: Any = self.data
        self.data = posted = posted.copy()
        posted["seen"] = json.dumps(shown)

    def _fingerprints(self) -> dict[str, str]:
        """Of the stored values, as the form shows them: to the second."""
        return {name: _fingerprint(self[name].initial) for name in self.fields if name != "seen"}

    def _shown(self) -> dict[str, str]:
        try:
            shown = json.loads(self.data.get("seen", ""))
        except (ValueError, RecursionError):
            shown = None
        if not isinstance(shown, dict):
            raise ValidationError(_("The form lacks what it was opened with. Open the page again."))
        return shown

    def _conflict(self, name: str, yours: Any) -> ValidationError:
        said = {"theirs": self._said(name, getattr(self.instance, name)), "yours": self._said(name, yours)}
        told = _("Changed by somebody meanwhile, to “%(theirs)s”. Yours is “%(yours)s”: save again to keep it.")
        return ValidationError(told, "conflict", said)

    def _said(self, name: str, value: Any) -> str:
        field = self.fields[name]
        if isinstance(field, forms.TypedChoiceField):
            return str(dict(field.choices).get(value, value))  # type: ignore[arg-type]  # no groups here
        if isinstance(value, bool):
            return str(_("yes") if value else _("no"))
        return str(timezone.localtime(value)) if isinstance(value, datetime) else str(field.prepare_value(value))


def _refuse_deep(value: Any, levels: int = 100) -> None:
    level = [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        level = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        levels -= 1
        if not levels:
            raise ValueError("it is nested too deeply")


def _fingerprint(value: Any) -> str:
    match value:
        case datetime():
            value = (value - EPOCH) // timedelta(seconds=1)
        case str():
            value = value.replace("\r\n", "\n").strip()
        case timedelta():
            value = str(value)
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
