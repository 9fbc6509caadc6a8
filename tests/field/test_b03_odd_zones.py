"""Half-hour shifts, and zones that skip midnight.

Libraries that step in whole hours skipped a good slot in the one zone that shifts by 30 minutes. Others went back to
local midnight while they searched and, where midnight is the hour that does not exist, lost a day, then a week or a
year.

We promise nothing special for such zones: the same rules, to the second, whatever the shift and whenever it comes.
"""

from datetime import timedelta

import pytest

from cronoq_django import cron
from tests.field.walks import HOUR, MINUTE, TICK, assert_never_longer, assert_slots, moment, moments

ROWS = [
    ("0 * * * *", "Australia/Lord_Howe", "2025-10-04T14:30", "2025-10-04T16:00 17:00 18:00"),
    ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T10:00", "2025-10-04T15:30 05T15:15"),
    ("45 1 * * *", "Australia/Lord_Howe", "2025-04-05T10:00", "2025-04-05T14:45 06T15:15"),
    ("0 0 * * *", "Africa/Cairo", "2025-04-23T12:00", "2025-04-23T22:00 24T22:00 25T21:00"),
    ("0 0 * * *", "America/Havana", "2025-03-07T12:00", "2025-03-08T05:00 09T05:00 10T04:00"),
    ("0 1 * * 0", "America/Sao_Paulo", "2018-11-03T12:00", "2018-11-04T03:00 11T03:00"),
    ("0 1 4 11 *", "America/Sao_Paulo", "2018-11-04T02:00", "2018-11-04T03:00 2019-11-04T04:00"),
    ("0 0 * * *", "Asia/Kathmandu", "2025-01-01T00:00", "2025-01-01T18:15"),
]


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), ROWS)
def test_slots_where_clocks_are_odd(expression: str, zone: str, after: str, expected: str) -> None:
    assert_slots(cron(expression, timezone=zone), after, moments(expected))


@pytest.mark.parametrize(
    ("expression", "zone", "after"),
    [row[:3] for row in ROWS if row[0].endswith("* * *")]
    + [("0 0 * * *", "America/Sao_Paulo", "2017-01-01"), ("0 0 * * *", "America/Santiago", "2024-01-01")],
)
def test_no_day_is_lost_in_three_years(expression: str, zone: str, after: str) -> None:
    assert_never_longer(cron(expression, timezone=zone), after, days=1_100, most=25 * HOUR)


def test_a_weekly_job_is_never_a_week_late_where_its_midnight_is_skipped() -> None:
    for expression in ("0 0 * * 0", "30 0 * * 0", "0 1 * * 0"):
        schedule = cron(expression, timezone="America/Sao_Paulo")
        assert_never_longer(schedule, "2014-01-01", days=2_000, most=timedelta(days=7, hours=1))


def test_a_yearly_job_comes_every_year_where_its_midnight_is_skipped_in_some() -> None:
    """Cairo's clocks go forward at the midnight of a Friday, which is now and then the date asked for."""
    slots = cron("0 0 25 4 *", timezone="Africa/Cairo").upcoming(moment("2020-01-01"), 12)
    assert [slot.year for slot in (slot + 3 * HOUR for slot in slots)] == list(range(2020, 2032))


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), ROWS)
def test_starts_just_beside_a_slot(expression: str, zone: str, after: str, expected: str) -> None:
    schedule = cron(expression, timezone=zone)
    for slot in moments(expected):
        for distance in (TICK, MINUTE, 13 * MINUTE, 45 * MINUTE):
            coming, before = schedule.next(slot - distance), schedule.previous(slot + distance)
            assert coming is not None
            assert before is not None
            assert slot - distance < coming <= slot <= before < slot + distance
