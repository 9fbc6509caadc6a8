"""Time zones by name, the same names on every host."""

from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from .errors import ScheduleError

# They load where the host happens to have such a file, and mean what that host happens to mean.
HOST_ACCIDENTS = frozenset({"Factory", "localtime", "posixrules"})


@cache
def names() -> frozenset[str]:
    """Every name that `zone` accepts: those of the tz database as installed, without directories and host settings."""
    return frozenset(available_timezones() - HOST_ACCIDENTS)


@cache
def tz_release() -> str:
    """Which tz data is in use: its release, and whether it is the system's or the `tzdata` package's."""
    for folder in map(Path, TZPATH):
        if (folder / "Europe" / "London").exists():
            with suppress(OSError):
                first = (folder / "tzdata.zi").read_text(encoding="ascii", errors="replace").partition("\n")[0]
                return f"{first.removeprefix('# version ')} ({folder})"
            return f"unknown release ({folder})"
    with suppress(ImportError):
        return f"{import_module('tzdata').IANA_VERSION} (the tzdata package)"
    return "none"


def zone(name: str) -> ZoneInfo:
    """The zone called `name` ("Europe/Warsaw", "UTC").

    "It loads" proves nothing: `right/UTC` counts leap seconds, `localtime` is whatever the host was set to, and bad
    names fail with three kinds of exception. So a name is good only if it is listed; every other one raises
    `ScheduleError("timezone")`.
    """
    if not isinstance(name, str) or name not in names():
        raise ScheduleError(f"{_short(name)} is no time zone: {_way_out(name)}", field="timezone")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ScheduleError(f"the time zone {name} can't be read on this host: {error}", field="timezone") from error


def _way_out(name: object) -> str:
    # Not for anything longer than the longest name: comparing 300 characters with each would take a while.
    if isinstance(name, str) and len(name) <= 32 and (close := get_close_matches(name, names(), n=1, cutoff=0.8)):
        return f"did you mean {close[0]}?"
    return "use a name of the tz database, such as Europe/Warsaw or UTC"


def _short(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 60 else f"{text[:56]}…"
