"""How these cases look at a schedule: walked forwards, asked one by one, walked back, ticked as the leader does."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from cronoq_django import cron
from cronoq_django.schedules import Schedule, ScheduleError, Terms, decide, first_slot

TICK = timedelta.resolution
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def moment(text: str) -> datetime:
    """`2025-03-09T07:00` or `2025-03-09`, in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def moments(text: str, *, at: str = "00:00") -> list[datetime]:
    """`2025-03-09T06:55 07:00 03-10T06:30`: what is left out is as before; a day alone is meant `at` that time."""
    found: list[datetime] = []
    for word in text.split():
        before = f"{found[-1]:%Y-%m-%d}" if found else ""
        day, _, time = word.rpartition("T") if ":" in word else (word, "", at)
        full = before[: len(before) - len(day)] + day
        found.append(moment(f"{full}T{time}"))
    return found


def refused_at(expression: str, zone: str = "UTC") -> str:
    """The field at which this is refused; empty if it is not."""
    try:
        cron(expression, timezone=zone)
    except ScheduleError as error:
        return error.field
    return ""


def assert_slots(schedule: Schedule, after: str, slots: list[datetime]) -> None:
    """The slots after `after` begin with these, whichever way they are looked for."""
    start = moment(after)
    walked = schedule.upcoming(start, len(slots))
    assert walked == slots
    assert all(earlier < later for earlier, later in pairwise([start, *walked]))
    assert schedule.count(start, slots[-1], limit=1_000) == len(slots)
    for earlier, later in pairwise([start, *slots]):
        assert schedule.next(earlier) == later
        assert schedule.next(later - TICK) == later
        assert schedule.previous(later + TICK) == later
    for zone in {getattr(schedule, "timezone", "UTC"), "Pacific/Apia"}:
        assert schedule.next(start.astimezone(ZoneInfo(zone))) == slots[0]
    assert list(islice(schedule.walk_back(slots[-1] + TICK), len(slots))) == slots[::-1]
    assert [schedule.previous(later) for later in slots[1:]] == slots[:-1]
    before = schedule.previous(slots[0])
    assert before is not None
    assert before <= start
    assert schedule.next(before) == slots[0]


def assert_never_longer(schedule: Schedule, after: str, *, days: int, most: timedelta) -> None:
    """No two slots in a row are further apart than `most`, forwards and backwards, and none comes twice."""
    start = moment(after)
    slots = list(until(schedule, start, start + days * DAY))
    assert slots[0] - start <= most
    assert start + days * DAY - slots[-1] <= most
    assert all(timedelta() < later - earlier <= most for earlier, later in pairwise(slots))
    assert list(islice(schedule.walk_back(slots[-1] + TICK), len(slots))) == slots[::-1]


def until(schedule: Schedule, after: datetime, last: datetime) -> Iterator[datetime]:
    """The slots in (after, last]."""
    for slot in schedule.walk(after):
        if slot > last:
            return
        yield slot


def ticked(terms: Terms, begin: datetime, end: datetime, *, first: timedelta = timedelta()) -> list[datetime]:
    """The slots that a leader fires which looks every 20 seconds, for a job written at `begin`.

    As `plan` does it, the first slot is the one after the writing; as `fire` does it, each decision says the next one.
    `first` is how long after `begin` the first look is.
    """
    fired: list[datetime] = []
    due, now = first_slot(terms, begin), begin.astimezone(UTC) + first
    while now <= end:
        if due is not None and due <= now:
            decision = decide(terms, due, now)
            assert not decision.skipped
            assert decide(terms, due, now) == decision  # a leader that repeats it makes the same runs
            fired += decision.fire
            due = decision.next_slot
        now += 20 * SECOND
    return fired
