"""Weekday numbers, ranges that wrap, and where steps begin.

`7` was taken away in a major release, which broke stored schedules. `1-5` meant Sunday to Thursday in one library.
`FRI-MON` and `SAT-SUN` were accepted and never ran. `5/20` and `*/45` were read in different ways.

We promise Debian's numbers, 0 and 7 for Sunday; a range that would wrap is refused, with the way to write it. Whatever
is accepted has slots.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from cronoq_django import cron
from cronoq_django.models import Job
from tests.field.roads import Road
from tests.field.walks import DAY, assert_slots, moment, moments, refused_at, until

START = "2026-01-01"  # a Thursday
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DOUBTFUL = ["0 0 * * FRI-MON", "0 0 * * SAT-SUN", "*/0 * * * *", "60 * * * *", "* * * *", "0 30 2 * * *"]
REFUSED = DOUBTFUL[:-1]


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 0 * * 7", START, "2026-01-04 01-11"),
        ("0 0 * * 0", START, "2026-01-04 01-11"),
        ("0 0 * * 0,7", START, "2026-01-04 01-11 01-18"),
        ("0 0 * * 5-7", START, "2026-01-02 01-03 01-04 01-09"),
        ("0 0 * * 1-5", START, "2026-01-02 01-05 01-06 01-07"),
        ("5/20 * * * *", START, "2026-01-01T00:05 00:25 00:45 01:05"),
        ("*/45 * * * *", START, "2026-01-01T00:45 01:00 01:45 02:00"),
        ("10-50/15 * * * *", START, "2026-01-01T00:10 00:25 00:40 01:10"),
        ("0 0 1 */5 *", "2026-01-15", "2026-06-01 11-01 2027-01-01"),
        ("0 0 */10 * *", "2026-02-02", "2026-02-11 02-21 03-01"),
    ],
)
def test_meanings(expression: str, after: str, expected: str) -> None:
    assert_slots(cron(expression), after, moments(expected))


@pytest.mark.parametrize("expression", DOUBTFUL)
def test_refused_or_it_has_slots(road: Road, expression: str) -> None:
    refused = road(cron=expression)
    if refused:
        assert refused == {"cron"}
        assert not Job.objects.exists()
    else:
        assert cron(expression).next(datetime.now(UTC)) is not None


@pytest.mark.parametrize("expression", REFUSED)
def test_these_are_refused(road: Road, expression: str) -> None:
    road.refuses("cron", cron=expression)


def test_six_fields_have_seconds_in_front(road: Road) -> None:
    assert road(cron=DOUBTFUL[-1]) == set()
    assert_slots(cron("0 30 2 * * *"), START, moments("2026-01-01T02:30 02T02:30"))
    assert_slots(cron("*/20 30 2 * * *"), START, moments("2026-01-01T02:30 02:30:20 02:30:40 02T02:30"))


def test_put_there_by_sql_they_delay_nobody(set_aside: Callable[..., None]) -> None:
    set_aside("cron", [(expression, "UTC") for expression in REFUSED])


@pytest.mark.parametrize("last", [*DAYS, *"01234567"])
@pytest.mark.parametrize("first", [*DAYS, *"01234567"])
def test_every_range_of_weekdays_is_what_it_says_or_refused(first: str, last: str) -> None:
    low, high = (DAYS.index(name) if name in DAYS else int(name) for name in (first, last))
    expression, begin = f"0 0 * * {first}-{last}", moment("2026-01-03")  # a Saturday
    assert refused_at(expression) == ("cron" if low > high else "")
    if low <= high:
        slots = list(until(cron(expression), begin, begin + 7 * DAY))
        assert [slot.isoweekday() % 7 for slot in slots] == sorted({number % 7 for number in range(low, high + 1)})


@pytest.mark.parametrize("last", range(12))
@pytest.mark.parametrize("first", range(12))
def test_every_range_of_months_is_what_it_says_or_refused(first: int, last: int) -> None:
    begin = moment("2025-12-31")
    for low, high in ((MONTHS[first], MONTHS[last]), (str(first + 1), str(last + 1))):
        expression = f"0 0 1 {low}-{high} *"
        assert refused_at(expression) == ("cron" if first > last else "")
        if first <= last:
            months = [slot.month for slot in until(cron(expression), begin, begin + 365 * DAY)]
            assert months == list(range(first + 1, last + 2))
