"""The hour that comes twice.

Two opposite failures, in different schedulers: a daily job of a fixed time ran twice on the autumn night; and a job for
every hour or every quarter stood still for a whole real hour, because its local times "had run already".

We promise: a fixed time fires at the first of its two occurrences only; what goes on with the clock goes on through
both, so that the distance between two slots of `*/15` is always a quarter of an hour.
"""

from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from cronoq_django import cron
from cronoq_django.schedules import Terms
from tests.field.walks import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    assert_never_longer,
    assert_slots,
    moment,
    moments,
    ticked,
    until,
)

NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("30 1 * * *", NEW_YORK, "2025-11-02T04:00", "2025-11-02T05:30 03T06:30 04T06:30"),
        ("0 * * * *", "America/Los_Angeles", "2025-11-02T07:30", "2025-11-02T08:00 09:00 10:00 11:00"),
        ("*/15 * * * *", NEW_YORK, "2025-11-02T05:15", "2025-11-02T05:30 05:45 06:00 06:15 06:30 06:45 07:00 07:15"),
        ("0 17 * * *", NEW_YORK, "2025-11-02T12:00", "2025-11-02T22:00 03T22:00"),
    ],
)
def test_slots_around_the_repeat(expression: str, zone: str, after: str, expected: str) -> None:
    assert_slots(cron(expression, timezone=zone), after, moments(expected))


@pytest.mark.parametrize("first", [timedelta(seconds=n) for n in (0, 1, 7, 19)])
@pytest.mark.parametrize("misfire", ["latest", "all"])
def test_a_leader_that_looks_every_20_seconds_fires_each_slot_once(misfire: str, first: timedelta) -> None:
    begin, end = moment("2025-11-02T05:00"), moment("2025-11-02T08:00") + first
    daily = Terms(cron("30 1 * * *", timezone=NEW_YORK), misfire=misfire)
    assert ticked(daily, begin, end, first=first) == moments("2025-11-02T05:30")
    quarterly = Terms(cron("*/15 * * * *", timezone=NEW_YORK), misfire=misfire)
    fired = ticked(quarterly, begin, end, first=first)
    assert fired == [begin + n * 15 * MINUTE for n in range(1, 13)]
    assert (len(fired), fired[0], fired[-1]) == (12, moment("2025-11-02T05:15"), moment("2025-11-02T08:00"))


@pytest.mark.parametrize("zone", [NEW_YORK, "America/Los_Angeles", "Europe/London", "Australia/Lord_Howe"])
def test_a_quarter_of_an_hour_stays_one_all_year(zone: str) -> None:
    start = moment("2025-01-01")
    slots = list(until(cron("*/15 * * * *", timezone=zone), start, start + 366 * DAY))
    assert {later - earlier for earlier, later in pairwise(slots)} == {15 * MINUTE}
    assert len(slots) == 366 * 96


@pytest.mark.parametrize("expression", ["30 1 * * *", "0 17 * * *", "0 2 * * *", "59 0 * * *"])
def test_a_daily_job_has_one_slot_a_local_day_all_year(expression: str) -> None:
    schedule = cron(expression, timezone=NEW_YORK)
    assert_never_longer(schedule, "2025-01-01", days=800, most=25 * HOUR)
    start = datetime(2025, 1, 1, tzinfo=ZoneInfo(NEW_YORK))
    slots = list(until(schedule, start - SECOND, datetime(2026, 12, 31, 23, tzinfo=ZoneInfo(NEW_YORK))))
    assert len({slot.astimezone(ZoneInfo(NEW_YORK)).date() for slot in slots}) == len(slots) == 730


@pytest.mark.parametrize(
    ("fold", "expression", "expected"),
    [
        (0, "30 1 * * *", "2025-11-03T06:30"),
        (1, "30 1 * * *", "2025-11-03T06:30"),
        (0, "50 1 * * *", "2025-11-02T05:50"),
        (1, "50 1 * * *", "2025-11-03T06:50"),
        (0, "*/15 * * * *", "2025-11-02T06:00"),
        (1, "*/15 * * * *", "2025-11-02T07:00"),
    ],
)
def test_a_start_that_comes_twice_itself(fold: int, expression: str, expected: str) -> None:
    """A quarter to two of that night, the first time (05:45 UTC) and the second (06:45 UTC)."""
    start = datetime(2025, 11, 2, 1, 45, tzinfo=ZoneInfo(NEW_YORK), fold=fold)
    assert cron(expression, timezone=NEW_YORK).next(start) == moment(expected)
