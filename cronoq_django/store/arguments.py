"""Arguments: what callers give to the operations, checked before anything is done. Each error names the argument."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cronoq_django.models.fields import EARLIEST, LATEST, LONGEST, clean_text


def identifier(name: str, value: Any) -> UUID:
    """An id, or its text."""
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        raise ValueError(f"{name} must be an id (a UUID, or its text), not {value!r}") from None


def number(name: str, value: Any, least: int, most: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least:,} to {most:,}, not {value:,}")
    return value


def text(name: str, value: Any, longest: int, *, is_optional: bool = False) -> str:
    """A text that is stored as it is: one that would be altered is another one."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {value!r}")
    if not (value or is_optional):
        raise ValueError(f"{name} must not be empty")
    if len(value) > longest:
        raise ValueError(f"{name} must have at most {longest:,} characters, not {len(value):,}")
    if clean_text(value, longest) != value:
        raise ValueError(f"{name} must be without NUL and lone surrogates, which PostgreSQL can't store")
    return value


def texts(name: str, values: Any, longest: int) -> list[str]:
    """A list of texts, none of them empty."""
    return [text(name, value, longest) for value in items(name, values)]


def items(name: str, values: Any) -> list[Any]:
    """A list of anything; a text is none, nor is a dict."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list, not {values!r}")
    return list(values)


def mapping(name: str, values: Any) -> dict[Any, Any]:
    """A dict."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a dict, not {values!r}")
    return dict(values)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def span(name: str, value: Any, least: timedelta = timedelta()) -> timedelta:
    """A length of time: seconds or a timedelta."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = timedelta(seconds=value)
        except (OverflowError, ValueError):  # infinite, not a number, beyond the calendar
            value = timedelta.max
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be seconds or a timedelta, not {value!r}")
    if not least <= value <= LONGEST:
        raise ValueError(f"{name} must be from {least} to {LONGEST.days:,} days, not {value}")
    return value


def moment(name: str, value: Any) -> datetime:
    """An instant. One without a zone is refused, not guessed."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise TypeError(f"{name} must be an aware datetime, one with a time zone, not {value!r}")
    if not EARLIEST <= value <= LATEST:
        raise ValueError(f"{name} must be between the years {EARLIEST.year} and {LATEST.year}, not {value}")
    return value


def word(name: str, value: Any, words: Collection[str]) -> str:
    """One of a closed set of words."""
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, not {value!r}")
    return str(value)
