"""A job whose local time is skipped by the clock change.

An expression aimed at a wall time that does not exist on the spring day made "next" jump ten months ahead. Elsewhere it
answered with a moment before the start, so that the loop span; or it crashed; or the day was lost and nobody was told.

We promise: a job of fixed times fires right after the gap, once, however many of its times were skipped; a job that
goes on with the clock (`*/5`) has no slot in the hour that is not there, and misses none around it. An answer is always
later than the start, and a daily job never waits for more than 25 hours.
"""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cronoq_django import cron
from cronoq_django.schedules import Terms
from tests.field.walks import DAY, HOUR, MINUTE, TICK, assert_never_longer, assert_slots, moment, moments, ticked

NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("30 2 * * *", NEW_YORK, "2025-03-08T12:00", "2025-03-09T07:00 10T06:30 11T06:30"),
        ("30 2 * * *", NEW_YORK, "2025-03-09T06:59:30", "2025-03-09T07:00 10T06:30"),
        ("30 2 * * *", NEW_YORK, "2025-03-09T07:00", "2025-03-10T06:30"),
        ("0 2,3 * * *", NEW_YORK, "2025-03-09T05:00", "2025-03-09T07:00 10T06:00 07:00"),
        ("15 1 * * *", "Europe/London", "2025-03-29T12:00", "2025-03-30T01:00 31T00:15"),
        ("*/5 * * * *", NEW_YORK, "2025-03-09T06:52", "2025-03-09T06:55 07:00 07:05 07:10"),
    ],
)
def test_slots_around_the_gap(expression: str, zone: str, after: str, expected: str) -> None:
    assert_slots(cron(expression, timezone=zone), after, moments(expected))


@pytest.mark.parametrize(
    ("expression", "zone"), [("30 2 * * *", NEW_YORK), ("0 2,3 * * *", NEW_YORK), ("15 1 * * *", "Europe/London")]
)
def test_no_day_is_lost_in_three_years(expression: str, zone: str) -> None:
    assert_never_longer(cron(expression, timezone=zone), "2024-01-01", days=1_100, most=25 * HOUR)


def test_what_goes_on_with_the_clock_misses_nothing() -> None:
    assert_never_longer(cron("*/5 * * * *", timezone=NEW_YORK), "2025-02-01", days=60, most=5 * MINUTE)


@pytest.mark.parametrize("start", [moment("2025-03-09T05:00") + n * 7 * MINUTE - n * TICK for n in range(40)])
def test_from_any_moment_of_that_night_the_answer_lies_ahead(start: datetime) -> None:
    for expression in ("30 2 * * *", "0 2,3 * * *", "*/5 * * * *", "59 1 * * *", "0 3 * * *"):
        schedule = cron(expression, timezone=NEW_YORK)
        coming = schedule.next(start)
        assert coming is not None
        assert start < coming <= start + 25 * HOUR
        assert schedule.next(coming - TICK) == coming
        before = schedule.previous(coming)
        assert before is not None
        assert before <= start


@pytest.mark.parametrize(("fold", "expected"), [(0, "2025-03-10T06:30"), (1, "2025-03-09T07:00")])
def test_a_start_that_does_not_exist_itself(fold: int, expected: str) -> None:
    """Half past two of that night, read by the offset before the gap (07:30 UTC) or by the one after it (06:30 UTC)."""
    start = datetime(2025, 3, 9, 2, 30, tzinfo=ZoneInfo(NEW_YORK), fold=fold)
    assert cron("30 2 * * *", timezone=NEW_YORK).next(start) == moment(expected)


@pytest.mark.parametrize("first", [timedelta(seconds=n) for n in (0, 7, 19)])
def test_a_leader_that_looks_every_20_seconds_fires_once_on_that_day(first: timedelta) -> None:
    begin = moment("2025-03-09T05:00")
    for expression in ("30 2 * * *", "0,10,20,30,40,50 2 * * *", "0 2,3 * * *"):
        terms = Terms(cron(expression, timezone=NEW_YORK))
        assert ticked(terms, begin, begin + DAY, first=first) == moments("2025-03-09T07:00")
