"""Cron expressions: minute hour day-of-month month day-of-week, or six fields with seconds in front.

The dialect is Debian's. Weekday 0 and 7 are Sunday; names in any case; `a/n` runs from a to the field's end; if the
*text* of a day field starts with `*` both day fields must match, else either may. Beyond it: `L` and `LW` (last day,
last weekday of the month), `5L` (last Friday), `MON#2` (second Monday) and the aliases below.

`cronsim` parses and searches, on naive local time only; what a local time is in UTC is decided by `dst`.
"""

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import ClassVar
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from . import dst
from .errors import ScheduleError
from .moment import SECOND, utc
from .schedule import Schedule
from .zones import zone

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LONGEST = 200
FIELDS = "write minute hour day-of-month month day-of-week, or these with seconds in front, e.g. 30 3 * * MON-FRI"
WAYS_OUT = {
    "Wrong number of fields": FIELDS,
    "Bad second": "0 to 59",
    "Bad minute": "0 to 59",
    "Bad hour": "0 to 23",
    "Bad day-of-month": "1 to 31, L or LW, and a day that one of the months has",
    "Bad month": "1 to 12 or JAN to DEC; a range can't run backwards: NOV,DEC,JAN instead of NOV-JAN",
    "Bad day-of-week": "0 to 7 or SUN to SAT, 5L, MON#2; a range can't run backwards: FRI,SAT,SUN,MON instead of "
    "FRI-MON, SAT,SUN or 6-7 instead of SAT-SUN",
}
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
NUMBERS = {name: str(number) for names, base in ((DAYS, 0), (MONTHS, 1)) for number, name in enumerate(names, base)}
GAPS = ("", "shift", "skip")
REPEATS = ("", "first", "last", "both")


@dataclass(frozen=True, slots=True)
class Cron(Schedule):
    """The slots of a cron expression in a time zone.

    What happens when clocks change follows from the text, as in Debian's cron. A *wildcard* expression, whose minute or
    hour starts with `*`, goes on in real time: it fires through a repeated hour and has no slot in a skipped one. A
    *fixed-time* expression fires once for each local time it names: at the first of two occurrences, and right after
    the gap if the time is skipped (several times skipped together are one slot). Seconds have no say in this:
    `*/10 30 2 * * *` means half past two. `dst_gap` ("shift" or "skip") and `dst_repeat` ("first", "last" or "both")
    overrule the text.

    Raises `ScheduleError` ("cron", "timezone", "dst_gap", "dst_repeat") for what can't be read, and for dates that
    never come.
    """

    expression: str
    timezone: str = "UTC"
    dst_gap: str = ""
    dst_repeat: str = ""
    kind: ClassVar[str] = "cron"

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str) or len(self.expression) > LONGEST or not self.expression.isascii():
            raise ScheduleError(f"a cron expression is at most {LONGEST} ASCII characters: {FIELDS}", field="cron")
        object.__setattr__(self, "expression", " ".join(self.expression.split()))
        _parsed(self.expression)
        zone(self.timezone)
        for field, allowed in (("dst_gap", GAPS), ("dst_repeat", REPEATS)):
            if (value := getattr(self, field)) not in allowed:
                ways = ", ".join(filter(None, allowed))
                raise ScheduleError(f"{field} is {ways} or empty (the text decides), not {value!r}", field=field)

    def walk(self, after: datetime) -> Iterator[datetime]:
        return dst.walk(*self._terms, utc(after, "after"))

    def walk_back(self, before: datetime) -> Iterator[datetime]:
        return dst.walk_back(*self._terms, utc(before, "before"))

    def explain(self) -> str:
        words = _parsed(self.expression).explain()
        return f"{words[0].lower()}{words[1:]}, {self.timezone}"

    @property
    def wildcard(self) -> bool:
        """Whether the text of the minute or hour starts with `*`, so that the schedule goes on while clocks change."""
        return _is_wildcard(self.expression)

    @property
    def zone(self) -> ZoneInfo:
        """The time zone itself."""
        return zone(self.timezone)

    @property
    def gap(self) -> str:
        """What becomes of local times that are skipped: "shift" or "skip"."""
        return self.dst_gap or ("skip" if self.wildcard else "shift")

    @property
    def repeat(self) -> str:
        """At which of two occurrences of a local time the slot is: "first", "last" or "both"."""
        return self.dst_repeat or ("both" if self.wildcard else "first")

    def missing_before(self, slot: datetime) -> list[datetime]:
        """The named local times for which a slot stands in because clocks skipped them; the first and the last."""
        return dst.missing_before(LocalTimes(self.expression), self.zone, slot) if self.gap == "shift" else []

    @property
    def _terms(self) -> tuple[dst.Times, ZoneInfo, str, str]:
        return LocalTimes(self.expression), self.zone, self.gap, self.repeat


def cron(expression: str, *, timezone: str = "UTC", dst_gap: str = "", dst_repeat: str = "") -> Cron:
    """A schedule by cron expression: `cron("0 3 * * *", timezone="Europe/Warsaw")`. See `Cron`."""
    return Cron(expression, timezone, dst_gap, dst_repeat)


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """The naive local times an expression names, in either direction, to the ends of the calendar."""

    expression: str

    def forward(self, start: datetime) -> Iterator[datetime]:
        """Those not before `start`, increasing."""
        return self._search(start - SECOND, 1)

    def backward(self, end: datetime) -> Iterator[datetime]:
        """Those before `end`, decreasing."""
        return self._search(end, -1)

    def _search(self, origin: datetime, direction: int) -> Iterator[datetime]:
        search = copy(_parsed(self.expression))  # a fifth of the cost of parsing again
        search.dt, search.tick_direction = origin, direction
        try:
            yield from search
        except OverflowError:
            return


def _spelt(expression: str) -> str:
    """The expression in capitals, an alias written out."""
    if expression.startswith("@"):
        try:
            return ALIASES[expression.lower()]
        except KeyError:
            raise ScheduleError(f"{expression} is none of {', '.join(ALIASES)}", field="cron") from None
    return expression.upper()


@lru_cache(maxsize=4096)
def _is_wildcard(expression: str) -> bool:
    *_, minute, hour, _, _, _ = _spelt(expression).split()
    return minute.startswith("*") or hour.startswith("*")


def _number(text: str) -> str:
    return NUMBERS.get(text) or text.lstrip("0") or text[-1:]


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> CronSim:
    """The expression as cronsim understands it, for copying. Refuses what would never fire, or not as written."""
    text = _spelt(expression)
    for first, last in re.findall(r"([^\s,/]+?)(?:-([^\s,/]+))?/", text):
        # cronsim reads 5-5/20 as 5/20, and L/2 as L.
        if _number(first) == _number(last) or first in {"L", "LW"}:
            raise ScheduleError(f'"{expression}" has a step over the one value {first}: leave it out', field="cron")
    try:
        search = CronSim(text, datetime(2000, 1, 1))  # noqa: DTZ001
        next(copy(search))
    except CronSimError as error:
        why = f"{error}: {WAYS_OUT.get(str(error), FIELDS)}"
        raise ScheduleError(f'"{expression}" is no cron expression. {why}', field="cron") from None
    except StopIteration:
        # cronsim looks ahead 50 years. Any date that exists comes within 28: leap day and weekday repeat by then.
        raise ScheduleError(f'"{expression}" never fires: no month has such a day', field="cron") from None
    return search
