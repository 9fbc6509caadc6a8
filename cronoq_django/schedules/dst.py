"""Clock changes: from local times to UTC instants.

A zone's history is a row of spans, stretches of UTC with one offset. Within a span local time is UTC plus a constant,
so an expression's local times map one to one and in order. Everything peculiar sits between two spans: where the offset
grows, local times are missing (a gap); where it shrinks, some come twice (a repeat). Hence there are just two questions
to answer:

- a gap: "skip" gives its local times no slot, "shift" gives them one together, at the first instant after the gap;
- a repeat: the slot is at the "first" occurrence of the local time, at the "last", or at "both".

Nothing here assumes whole hours, one hour, or a clock that changes at night: Lord Howe shifts by 30 minutes, Troll by
two hours, Cairo and Havana have days without midnight, Apia had no 30 December 2011, and Monrovia was behind by
44 min 30 s until 1972.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol, Self
from zoneinfo import ZoneInfo

from .moment import SECOND

DAY = timedelta(days=1)
# A day's distance from the ends of the calendar keeps every local time inside it.
EARLIEST, LATEST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
BEFORE_ALL, AFTER_ALL = datetime.min, datetime.max  # noqa: DTZ901  (local times)


class Times(Protocol):
    """What is mapped: naive local times, whole seconds, strictly increasing or decreasing."""

    def forward(self, start: datetime) -> Iterator[datetime]:
        """Those not before `start`."""

    def backward(self, end: datetime) -> Iterator[datetime]:
        """Those before `end`, latest first."""


class Span(NamedTuple):
    """UTC from `start` until before `end`, with the naive local times at its edges, seen from both sides."""

    start: datetime
    end: datetime
    offset: timedelta
    left: datetime  # where the local clock stood when it was set to `opens`
    opens: datetime
    closes: datetime
    resumes: datetime  # what the local clock was set to when it stood at `closes`

    @classmethod
    def between(cls, zone: ZoneInfo, start: datetime, end: datetime) -> Self:
        before, offset, after = (_offset(zone, moment) for moment in (start - SECOND, start, end))
        opens, closes = start.replace(tzinfo=None), end.replace(tzinfo=None)
        return cls(start, end, offset, opens + before, opens + offset, closes + offset, closes + after)

    def part(self, repeat: str) -> tuple[datetime, datetime]:
        """The local times, from and until before, that have their slots in this span and not in a neighbour."""
        return (
            max(self.opens, self.left) if repeat == "first" else self.opens,
            min(self.closes, self.resumes) if repeat == "last" else self.closes,
        )


def walk(times: Times, zone: ZoneInfo, gap: str, repeat: str, after: datetime) -> Iterator[datetime]:
    """The instants of `times` strictly later than `after`, strictly increasing."""
    last = after
    clear_from = clear_until = BEFORE_ALL  # no local time is in between: rare schedules pass whole spans by
    for span in _spans_from(zone, after):
        opens, closes = span.part(repeat)
        if clear_from <= min(span.left, opens) and span.closes <= clear_until:
            continue
        skips = gap == "shift" and last < span.start and span.left < span.opens
        if skips and next(times.forward(span.left), AFTER_ALL) < span.opens:
            last = span.start
            yield last
        begin = max(opens, _second_after(max(last, span.start - SECOND), span.offset))
        coming = times.forward(begin)
        while (local := next(coming, AFTER_ALL)) < closes:
            last = local.replace(tzinfo=UTC) - span.offset
            yield last
        clear_from, clear_until = max(closes, begin), local


def walk_back(times: Times, zone: ZoneInfo, gap: str, repeat: str, before: datetime) -> Iterator[datetime]:
    """The instants of `times` strictly earlier than `before`, strictly decreasing."""
    last = before
    clear_from = clear_until = AFTER_ALL
    for span in _spans_back(zone, before):
        opens, closes = span.part(repeat)
        if span.closes <= clear_until and clear_from < min(span.left, opens):
            continue
        end = min(closes, _second_after(min(last, span.end) - timedelta.resolution, span.offset))
        earlier = times.backward(end)
        while (local := next(earlier, BEFORE_ALL)) >= opens:
            last = local.replace(tzinfo=UTC) - span.offset
            yield last
        if gap == "shift" and span.left <= local < span.opens and span.start < last:
            last = span.start
            yield last
        clear_from, clear_until = local, min(opens, end)


def missing_before(times: Times, zone: ZoneInfo, instant: datetime) -> list[datetime]:
    """The first and the last of `times` in the gap that ends at `instant`; none if no gap ends there."""
    for span in _spans(zone, instant.year):
        if span.start == instant and span.left < span.opens:
            first, last = next(times.forward(span.left), AFTER_ALL), next(times.backward(span.opens), BEFORE_ALL)
            return sorted({first, last}) if first < span.opens else []
    return []


def _second_after(moment: datetime, offset: timedelta) -> datetime:
    """The first whole local second strictly later than `moment`."""
    return moment.replace(microsecond=0, tzinfo=None) + offset + SECOND


def _spans_from(zone: ZoneInfo, moment: datetime) -> Iterator[Span]:
    for year in range(max(moment.year - 1, 1), 10_000):
        yield from (span for span in _spans(zone, year) if moment < span.end)


def _spans_back(zone: ZoneInfo, moment: datetime) -> Iterator[Span]:
    for year in range(moment.year, 0, -1):
        yield from (span for span in reversed(_spans(zone, year)) if span.start < moment)


@lru_cache(maxsize=2048)
def _spans(zone: ZoneInfo, year: int) -> tuple[Span, ...]:
    """The spans of about a year: one day at a time (no offset ever held for less than four), then to the second."""
    first, end = _calm(zone, year), _calm(zone, year + 1)
    cuts = [first]
    day, offset = first, _offset(zone, first)
    while day < end:
        day += DAY
        if (new := _offset(zone, day)) != offset:
            cuts.append(_change(zone, day - DAY, day))
            offset = new
    return tuple(Span.between(zone, *edges) for edges in pairwise([*cuts, end]))


def _calm(zone: ZoneInfo, year: int) -> datetime:
    """The first day of a year with no change near: cut within a repeat, the second half would not know of the first."""
    if not 1 < year < 10_000:
        return EARLIEST if year <= 1 else LATEST
    day = datetime(year, 1, 1, tzinfo=UTC)
    while len({_offset(zone, day + days * DAY) for days in (-2, -1, 0, 1, 2)}) > 1:
        day += DAY
    return day


def _change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first second, in (before, after], with the offset that holds at `after`."""
    new = _offset(zone, after)
    while after - before > SECOND:
        middle = (before + (after - before) / 2).replace(microsecond=0)
        before, after = (before, middle) if _offset(zone, middle) == new else (middle, after)
    return after


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)
