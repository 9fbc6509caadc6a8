"""Columns that hold what PostgreSQL can hold: lossless JSON, and text without NUL."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import FieldError, ValidationError
from django.core.validators import MaxLengthValidator, MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.lookups import IsNull
from django.utils.functional import Promise, cached_property
from django.utils.translation import gettext_lazy as _

from cronoq_django.errors import LONGEST_DELAY

# Beyond these years some zone's local time overflows, and the driver can't read the row; nor can it read 'infinity'.
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, tzinfo=UTC)
END = datetime(9999, 12, 31, tzinfo=UTC)  # slots may come up to here
LONGEST = LONGEST_DELAY

# A text bound of ours, in characters: an error of several megabytes helps nobody and makes every page heavy.
TEXT_LIMIT = 64_000

DEEPEST = 200  # levels of JSON: what fits into this stack must fit into that of whoever reads it

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(value: str, limit: int = TEXT_LIMIT) -> str:
    """The text as PostgreSQL can store it: U+FFFD for NUL and for lone surrogates, at most `limit` characters."""
    if len(value) > limit:
        value = value[: limit - 1] + "…"
    if "\0" in value:
        value = value.replace("\0", _REPLACEMENT)
    try:
        value.encode()
    except UnicodeEncodeError:
        value = "".join(_REPLACEMENT if "\ud800" <= letter <= "\udfff" else letter for letter in value)
    return value


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def dump_json(value: Any, name: str = "value") -> str:
    """The value as JSON text that reads back equal. Raises TypeError or ValueError, naming the place, if it can't.

    Stricter than `json.dumps`: NaN and infinities, and keys that are no text, are refused instead of altered. Tuples
    come back as lists, as everywhere in Django.
    """
    try:
        _refuse_altered(value, name, DEEPEST)
        return _encode(value)
    except RecursionError:
        raise ValueError(f"{name}: nested too deeply") from None


def load_json(text: str) -> Any:
    """The value of JSON text. Raises ValueError also for what is JSON, but more than Python reads."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class Unreadable(str):
    """JSON text that Python does not read: only SQL puts it into a row. Shown as it is, refused wherever it is used."""

    __slots__ = ()


def _refuse_altered(value: Any, path: str, deeper: int) -> None:  # noqa: PLR0912  (one for each kind of value)
    """`json.dumps` silently turns keys into text, and so loses one of 1 and "1"."""
    if not deeper:
        raise ValueError(f"{path.partition('[')[0]}: nested too deeply, more than {DEEPEST} levels")
    match value:
        case Unreadable():
            raise ValueError(f"{path}: the stored JSON can't be read")
        case None | bool() | str():
            return
        case int():
            if value.bit_length() > 14_000:  # 4,300 digits: Python refuses to read longer ones back
                raise ValueError(f"{path}: the number has too many digits")
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{path}: {value} is not a JSON number")
        case list() | tuple():
            for index, item in enumerate(value):
                _refuse_altered(item, f"{path}[{index}]", deeper - 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"{path}: the key {key!r} is {type(key).__name__}; JSON keys are text")
                _refuse_altered(item, f"{path}[{key!r}]", deeper - 1)
        case _:
            raise TypeError(f"{path}: {type(value).__name__} is not a JSON value")


class MomentField(models.DateTimeField):
    """An instant that somebody chose, in the years that every zone and driver can handle."""

    default_validators = [MinValueValidator(EARLIEST), MaxValueValidator(LATEST)]

    def validate(self, value: Any, model_instance: Any) -> None:
        super().validate(value, model_instance)
        if isinstance(value, datetime) and value.utcoffset() is None:
            raise ValidationError(_("a date and time without a time zone is no instant"), code="invalid")


class SpanField(models.DurationField):
    """A length of time that somebody chose: not negative, and not so long that adding it to an instant overflows."""

    default_validators = [MinValueValidator(timedelta()), MaxValueValidator(LONGEST)]


class CleanTextField(models.TextField):
    """Text that PostgreSQL can always store: see `clean_text`. Validation enforces `max_length`, and writing cuts."""

    @cached_property
    def validators(self) -> list[Any]:
        """A TextField's own `max_length` binds forms only."""
        bound = [MaxLengthValidator(self.max_length)] if self.max_length else []
        return [*super().validators, *bound]

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        return clean_text(value, self.max_length or TEXT_LIMIT) if isinstance(value, str) else value

    def formfield(self, **kwargs: Any) -> Any:
        # Names and the like fit one line; only long texts get a text area.
        if self.max_length and not self.choices:
            kwargs.setdefault("widget", forms.TextInput)
        return super().formfield(**kwargs)


class JsonField(models.Field):
    """A PostgreSQL `json` column: the text is kept as written, so what went in comes out, NUL (\\u0000) and all.

    Django's own JSONField writes through jsonb, which refuses \\u0000 and loses the order of keys and the spelling of
    numbers. SQL never looks inside: lookups other than `isnull` are refused.
    """

    description = _("A JSON value")
    empty_strings_allowed = False

    def db_type(self, connection: Any) -> str:
        return "json"

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return f"{sql}::text", params  # else the driver would parse it, by its own rules

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if value is None:
            return None
        try:
            return load_json(value)
        except ValueError:
            return Unreadable(value)  # one row's trouble must not take a whole list away

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if value is None or hasattr(value, "as_sql"):
            return value
        return dump_json(value)

    def get_lookup(self, lookup_name: str) -> Any:
        if lookup_name != "isnull":
            raise FieldError(f"{self.name} is JSON text that SQL does not look into: only isnull can be asked.")
        return IsNull

    def get_transform(self, lookup_name: str) -> Any:
        raise FieldError(f"{self.name} is JSON text that SQL does not look into: it has no {lookup_name!r}.")

    def validate(self, value: Any, model_instance: Any) -> None:
        super().validate(value, model_instance)
        try:
            dump_json(value)
        except (TypeError, ValueError) as error:
            raise ValidationError(str(error), code="invalid") from error

    def value_to_string(self, obj: Any) -> Any:
        return self.value_from_object(obj)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, Promise):
            raise ValidationError(_("a lazy translation is not a JSON value"), code="invalid")
        return value

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": forms.JSONField, **kwargs})


class TextListField(models.Field):
    """A `text[]` column. Django's ArrayField would make every project install `django.contrib.postgres`."""

    description = _("A list of texts")
    empty_strings_allowed = False

    def db_type(self, connection: Any) -> str:
        return "text[]"

    def get_prep_value(self, value: Any) -> Any:
        return [clean_text(item) for item in value] if isinstance(value, list | tuple) else value

    def value_to_string(self, obj: Any) -> Any:
        return self.value_from_object(obj)

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": forms.JSONField, **kwargs})


@TextListField.register_lookup
class Contains(models.Lookup):
    """All of the given texts are in the list: `tags__contains=["billing"]`."""

    lookup_name = "contains"
    prepare_rhs = True

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        left, left_params = self.process_lhs(compiler, connection)
        right, right_params = self.process_rhs(compiler, connection)
        return f"{left} @> {right}::text[]", (*left_params, *right_params)
