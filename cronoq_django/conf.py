"""The one `CRONOQ` settings dict, read lazily: every value has a default, durations are seconds or timedeltas.

>>> CRONOQ = {"DATABASE": "default", "LEADER_TTL": 10, "LEASE": timedelta(seconds=30)}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """The settings of this project, each checked."""

    database: str = "default"  # the alias of the cluster's database
    leader_dsn: str = ""  # connects the leader straight to PostgreSQL where the alias goes through a pooler
    leader_ttl: timedelta = timedelta(seconds=10)  # a frozen leader is replaced within about this
    lease: timedelta = timedelta(seconds=30)  # a vanished worker's runs are taken back after this
    poll: timedelta = timedelta(seconds=1)  # the longest pause between two looks for work
    grace: timedelta = timedelta(seconds=30)  # how long a stopping worker waits for running work
    retention: Mapping[str, timedelta] = field(
        default_factory=lambda: {"succeeded": 7 * DAY, "failed": 30 * DAY, "cancelled": 7 * DAY, "skipped": 7 * DAY}
    )  # how long finished runs are kept, by status
    imports: tuple[str, ...] = ()  # modules with tasks beside each app's `tasks`
    max_payload: int = 1_000_000  # bytes of JSON in one run's arguments


_process: dict[str, str] = {}  # what this process alone has otherwise


def serve(alias: str) -> None:
    """From now on this process works for the cluster of that database alias, and its tasks enqueue there."""
    _process["DATABASE"] = alias
    conf.cache_clear()


@cache
def conf() -> Conf:
    """The settings in force. Raises ImproperlyConfigured, naming the setting."""
    given = getattr(settings, "CRONOQ", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured("CRONOQ must be a dict.")
    given = {**given, **_process}
    known = {f.name.upper(): f.name for f in fields(Conf)}
    if unknown := sorted(set(given) - set(known)):
        raise ImproperlyConfigured(f"CRONOQ has no setting {unknown[0]!r}; there are {', '.join(sorted(known))}.")
    values = {known[name]: _read(name, value) for name, value in given.items()}
    return Conf(**values)


def _read(name: str, value: Any) -> Any:
    match name:
        case "DATABASE" | "LEADER_DSN":
            good = isinstance(value, str)
        case "LEADER_TTL" | "LEASE" | "POLL" | "GRACE":
            value = _duration(name, value)
            good = value >= {"LEADER_TTL": timedelta(seconds=1), "LEASE": timedelta(seconds=1)}.get(name, timedelta())
        case "RETENTION":
            value = _retention(value)
            good = True
        case "IMPORTS":
            good = not isinstance(value, str) and all(isinstance(module, str) for module in value)
            value = tuple(value)
        case _:
            good = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not good:
        raise ImproperlyConfigured(
            f"CRONOQ[{name!r}] = {value!r} is not usable; see the settings in the documentation."
        )
    return value


def _duration(name: str, value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    raise ImproperlyConfigured(f"CRONOQ[{name!r}] must be seconds or a timedelta, not {value!r}.")


def _retention(value: Any) -> Mapping[str, timedelta]:
    defaults = Conf().retention
    if not isinstance(value, Mapping):
        return dict.fromkeys(defaults, _duration("RETENTION", value))
    if unknown := sorted(set(value) - set(defaults)):
        raise ImproperlyConfigured(f"CRONOQ['RETENTION'] has no {unknown[0]!r}; there are {', '.join(defaults)}.")
    return {**defaults, **{status: _duration("RETENTION", kept) for status, kept in value.items()}}


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "CRONOQ":
        conf.cache_clear()


setting_changed.connect(_forget)
