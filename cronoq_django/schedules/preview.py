"""Preview: the slots that a job would have, and what the clock does to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from .cron import Cron
from .decide import Terms, first_slot
from .moment import utc
from .schedule import Schedule


@dataclass(frozen=True, slots=True)
class Preview:
    """One slot: the instant in UTC, the same in the schedule's zone, and a note if clocks change there."""

    slot: datetime
    local: datetime
    note: str = ""


def preview(
    schedule: Schedule | Terms, after: datetime, *, until: datetime | None = None, count: int = 10
) -> Iterator[Preview]:
    """The first `count` slots later than `after`, up to `until`. Both must have a time zone.

    >>> for one in preview(cron("30 2 * * *", timezone="America/New_York"), datetime(2025, 3, 8, 12, tzinfo=UTC)):
    ...     print(one.slot, one.local, one.note)
    2025-03-09 07:00:00+00:00 2025-03-09 03:00:00-04:00 02:30 does not exist on this day: fires at 03:00
    """
    terms = schedule if isinstance(schedule, Terms) else Terms(schedule)
    until = None if until is None else utc(until, "until")
    zone: tzinfo = terms.schedule.zone if isinstance(terms.schedule, Cron) else UTC
    for _ in range(count):
        slot = first_slot(terms, after)
        if slot is None or (until is not None and slot > until):
            return
        yield Preview(slot, slot.astimezone(zone), _note(terms.schedule, slot))
        after = slot


def _note(schedule: Schedule, slot: datetime) -> str:
    if not isinstance(schedule, Cron):
        return ""
    local = slot.astimezone(schedule.zone)
    if missing := schedule.missing_before(slot):
        day = "on this day" if missing[0].date() == local.date() else f"on {missing[0]:%Y-%m-%d}"
        return f"{_times(missing)} {day}: fires at {_clock(local)}"
    other = local.replace(fold=1 - local.fold)
    if other.utcoffset() == local.utcoffset():
        return ""
    which = "second" if local.fold else "first"
    also = schedule.repeat == "both"
    return f"{_clock(local)} comes twice on this day: fires at {'both, this is the' if also else 'the'} {which}"


def _times(missing: list[datetime]) -> str:
    if len(missing) == 1:
        return f"{_clock(missing[0])} does not exist"
    return f"{_clock(missing[0])} to {_clock(missing[-1])} do not exist"


def _clock(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
