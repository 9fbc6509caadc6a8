"""The walk against brute force: every UTC minute around clock changes, and what its wall clock shows."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cronoq_django.schedules import ScheduleError, cron

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NAMES = """
    Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Johannesburg Africa/Tunis America/Anchorage America/Asuncion
    America/Argentina/San_Luis America/Caracas America/Godthab America/Halifax America/Havana America/Los_Angeles
    America/New_York America/Noronha America/Santiago America/Sao_Paulo America/Scoresbysund America/St_Johns
    Antarctica/Casey Antarctica/Macquarie Antarctica/Troll Antarctica/Vostok Asia/Amman Asia/Beirut Asia/Dhaka
    Asia/Gaza Asia/Kathmandu Asia/Kolkata Asia/Pyongyang Asia/Tehran Asia/Tokyo Atlantic/Azores Australia/Adelaide
    Australia/Eucla Australia/Lord_Howe Australia/Sydney Europe/Berlin Europe/Dublin Europe/Istanbul Europe/Lisbon
    Europe/London Europe/Moscow Europe/Volgograd Pacific/Apia Pacific/Auckland Pacific/Chatham Pacific/Easter
    Pacific/Fakaofo Pacific/Kiritimati Pacific/Kwajalein Pacific/Norfolk Pacific/Tongatapu UTC
"""
ZONES = NAMES.split()
LIMITS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    steps = st.integers(1, high)
    span = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1]).map(lambda pair: f"{pair[0]}-{pair[1]}")
    term = st.one_of(
        number.map(str),
        span,
        st.tuples(span, steps).map("{0[0]}/{0[1]}".format),
        st.tuples(number, steps).map("{0[0]}/{0[1]}".format),
    )
    return st.one_of(st.just("*"), steps.map("*/{}".format), term, st.lists(term, min_size=2, max_size=3).map(",".join))


# Mostly unrestricted dates, or hardly a window would contain a slot.
EXPRESSIONS = st.tuples(
    *(field(low, high) for low, high in LIMITS[:2]),
    *(st.one_of(st.just("*"), st.just("*"), field(low, high)) for low, high in LIMITS[2:]),
)


def values(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for term in text.split(","):
        base, _, step = term.partition("/")
        first, _, last = base.partition("-")
        if base == "*":
            first, last = str(low), str(high)
        found.update(range(int(first), int(last or (high if step else first)) + 1, int(step or 1)))
    return found


def matcher(fields: tuple[str, ...]):
    minutes, hours, dates, months, weekdays = (
        values(text, *limits) for text, limits in zip(fields, LIMITS, strict=True)
    )
    both = fields[2].startswith("*") or fields[4].startswith("*")

    @cache
    def day(year: int, month: int, date: int) -> bool:
        weekday = datetime(year, month, date).isoweekday()  # noqa: DTZ001
        by_date, by_weekday = date in dates, weekday in weekdays or weekday % 7 in weekdays
        return month in months and ((by_date and by_weekday) if both else (by_date or by_weekday))

    return lambda at: at.minute in minutes and at.hour in hours and day(at.year, at.month, at.day)


def brute_force(
    fields: tuple[str, ...], zone: ZoneInfo, gap: str, repeat: str, begin: datetime, end: datetime
) -> Iterator[datetime]:
    """Slots in (begin, end], by asking every minute's wall clock."""
    matches = matcher(fields)
    wildcard = fields[0].startswith("*") or fields[1].startswith("*")
    gap, repeat = gap or ("skip" if wildcard else "shift"), repeat or ("both" if wildcard else "first")
    moment = begin.replace(second=0, microsecond=0)
    before = moment.astimezone(zone)
    while (moment := moment + MINUTE) <= end:
        local = moment.astimezone(zone)
        fires = matches(local)
        if fires and repeat != "both":
            fires = local.replace(fold=int(repeat == "last")).astimezone(UTC) == moment
        skipped = before.replace(tzinfo=None) + MINUTE
        while gap == "shift" and not fires and skipped < local.replace(tzinfo=None):
            fires = matches(skipped)
            skipped += MINUTE
        if fires:
            yield moment
        before = local


@cache
def changes(zone: str, year: int) -> list[datetime]:
    days = [datetime(year, 1, 1, 12, tzinfo=UTC) + k * DAY for k in range(366)]
    offsets = [day.astimezone(ZoneInfo(zone)).utcoffset() for day in days]
    found = []
    for day, old, new in zip(days[1:], offsets, offsets[1:], strict=False):
        if old != new:
            minutes = (day - DAY + n * MINUTE for n in range(1, 24 * 60 + 1))
            found.append(next(minute for minute in minutes if minute.astimezone(ZoneInfo(zone)).utcoffset() == new))
    return found


@pytest.mark.timeout(0)  # as many as one likes
@given(
    EXPRESSIONS,
    st.sampled_from(ZONES),
    st.integers(1973, 2037),
    st.integers(0, 9),
    st.one_of(st.timedeltas(-2 * HOUR, 2 * HOUR), st.timedeltas(-47 * HOUR, 3 * HOUR)),
    st.sampled_from(["", "", "shift", "skip"]),
    st.sampled_from(["", "", "first", "last", "both"]),
)
@settings(
    max_examples=int(os.environ.get("CRONOQ_EXAMPLES", "200")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_walks_agree_with_every_minute_of_the_wall_clock(fields, zone, year, which, shift, gap, repeat) -> None:
    """Each rule of its own looked right; together they returned moments of the past, lost slots, or made them twice."""
    try:
        schedule = cron(" ".join(fields), timezone=zone, dst_gap=gap, dst_repeat=repeat)
    except ScheduleError:
        return  # an impossible date, or a step over one value: what is refused is not walked
    coming = (changes(zone, later) for later in range(year, 2038))  # many zones had few, and long ago
    near = next(filter(None, coming), [datetime(year, 6, 1, tzinfo=UTC) + which * 20 * DAY])
    begin = near[which % len(near)] + shift
    end = begin + 2 * DAY
    expected = list(brute_force(fields, ZoneInfo(zone), gap, repeat, begin, end))
    assert list(takewhile(lambda slot: slot <= end, schedule.walk(begin))) == expected
    back = takewhile(lambda slot: slot > begin, schedule.walk_back(end + timedelta.resolution))
    assert list(back) == expected[::-1]
    assert schedule.count(begin, end, limit=10_000) == len(expected)
    for slot in expected[:3] + expected[-3:]:
        assert schedule.next(slot - timedelta.resolution) == slot
        assert schedule.previous(slot + timedelta.resolution) == slot


@given(EXPRESSIONS, st.sampled_from(ZONES), st.datetimes(datetime(1900, 1, 1), datetime(2400, 1, 1)))  # noqa: DTZ001
@settings(max_examples=int(os.environ.get("CRONOQ_EXAMPLES", "200")), deadline=None)
def test_there_and_back(fields, zone, moment) -> None:
    """At any time, with offsets of odd seconds too: increasing, and the way back finds the same slots."""
    try:
        schedule = cron(" ".join(fields), timezone=zone)
    except ScheduleError:
        return
    start = moment.replace(tzinfo=UTC)
    there = schedule.upcoming(start, 5)
    assert there == sorted(set(there))
    assert there[0] > start
    assert [schedule.previous(later) for later in there[1:]] == there[:-1]
    earlier = schedule.previous(there[0])
    assert earlier is not None
    assert earlier <= start
    assert schedule.next(earlier) == there[0]
    assert schedule.explain().endswith(zone)
