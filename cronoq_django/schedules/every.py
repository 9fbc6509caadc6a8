"""Intervals of real elapsed time from an anchor."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count as counting
from typing import ClassVar

from .errors import ScheduleError
from .moment import SECOND, utc
from .schedule import Schedule

LONGEST = timedelta(days=36_525)
UNITS = {"day": timedelta(days=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1), "second": SECOND}


@dataclass(frozen=True, slots=True)
class Every(Schedule):
    """A slot at `anchor + k * interval` for k = 1, 2, 3, …: the anchor itself is none.

    The anchor is stored with the job, so restarts and edits of other fields don't move the slots: a weekly interval
    counted from the start of a process never came due where deploys were weekly. Two hours are two hours, whatever the
    clocks do meanwhile. A declaration in code has no anchor yet; it has no slots before `anchored()` gave it one.
    """

    interval: timedelta
    anchor: datetime | None = None
    kind: ClassVar[str] = "every"

    def __post_init__(self) -> None:
        if not isinstance(self.interval, timedelta) or not SECOND <= self.interval <= LONGEST:
            raise ScheduleError(
                f"an interval is a timedelta from 1 second to 100 years, not {self.interval!r}", field="every"
            )
        if self.anchor is not None:
            object.__setattr__(self, "anchor", utc(self.anchor, "anchor"))

    def anchored(self, at: datetime) -> "Every":
        """The same interval counted from `at`."""
        return replace(self, anchor=at)

    def walk(self, after: datetime) -> Iterator[datetime]:
        anchor = self._anchor
        return self._slots(anchor, counting(max((utc(after, "after") - anchor) // self.interval + 1, 1)))

    def walk_back(self, before: datetime) -> Iterator[datetime]:
        anchor = self._anchor
        return self._slots(anchor, range(-((anchor - utc(before, "before")) // self.interval) - 1, 0, -1))

    def count(self, after: datetime, until: datetime, *, limit: int) -> int:
        passed, reached = (utc(after, "after") - self._anchor, utc(until, "until") - self._anchor)
        return min(max(reached // self.interval, 0) - max(passed // self.interval, 0), limit) if passed < reached else 0

    def explain(self) -> str:
        unit = next((name for name, length in UNITS.items() if not self.interval % length), "second")
        number = self.interval / UNITS[unit]
        return f"every {unit}" if number == 1 else f"every {number:.15g} {unit}s"

    @property
    def _anchor(self) -> datetime:
        if self.anchor is None:
            raise ScheduleError("this interval has no anchor to count from yet: use .anchored(at)", field="anchor")
        return self.anchor

    def _slots(self, anchor: datetime, numbers: Iterator[int] | range) -> Iterator[datetime]:
        try:
            for k in numbers:
                yield anchor + k * self.interval
        except OverflowError:
            return


def every(
    interval: timedelta | None = None,
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    anchor: datetime | None = None,
) -> Every:
    """A schedule with a slot every `interval`: `every(timedelta(hours=2))`, or shorter `every(hours=2)`.

    At least 1 second, at most 100 years. Without an `anchor` the job's own is used: the moment it was first stored.
    """
    try:
        spelt = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError, TypeError) as error:
        raise ScheduleError(f"an interval is from 1 second to 100 years: {error}", field="every") from error
    if interval is not None and spelt:
        raise ScheduleError("give the interval once: as a timedelta or in units", field="every")
    return Every(spelt if interval is None else interval, anchor)
