"""Dates that never come, or hardly ever.

An expression for 30 February kept a core busy for ever and froze the process. Another library stopped searching after a
few years and called a job for 29 February invalid, depending on the year in which it was asked. "31 or the last day"
lost the months of 30 days, and a list with one impossible month in it was refused whole.

We promise: what never comes is refused at once, at the schedule's field, by every road into the table; put there by SQL
it is that job's error and delays nobody. What comes, however rarely, is found from any year.
"""

from collections.abc import Callable

import pytest

from cronoq_django import cron
from tests.field.roads import Road
from tests.field.walks import assert_slots, moment, moments

NEVER = ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6,9,11 *", "0 0 */5 2 MON#5", "0 0 */29 2 5L", "0 0 31 4 */2"]


@pytest.mark.parametrize("expression", NEVER)
def test_what_never_comes_is_refused_at_once(road: Road, expression: str) -> None:
    road.refuses("cron", cron=expression)


@pytest.mark.parametrize("expression", ["0 0 29 2 *", "0 0 31 2,4,6,8 *", "0 0 31,L * *"])
def test_what_comes_is_saved(road: Road, expression: str) -> None:
    """So that a refusal above is one of the date, and not of something else."""
    assert road(cron=expression) == set()


def test_put_there_by_sql_it_delays_nobody(set_aside: Callable[..., None]) -> None:
    set_aside("cron", [(expression, "UTC") for expression in NEVER])


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 0 29 2 *", "2096-03-01", "2104-02-29 2108-02-29"),
        ("0 0 29 2 *", "2025-03-01", "2028-02-29"),
        ("0 0 31 2,4,6,8 *", "2026-01-01", "2026-08-31 2027-08-31"),
        ("0 0 30 2,3 *", "2026-03-31", "2027-03-30"),
        ("0 0 31 1-5 *", "2018-07-27", "2019-01-31 03-31 05-31 2020-01-31"),
        ("0 0 L * *", "2028-01-15", "2028-01-31 02-29 03-31 04-30"),
        ("0 0 31,L * *", "2024-08-12", "2024-08-31 09-30 10-31 11-30"),
    ],
)
def test_what_comes_rarely_comes(expression: str, after: str, expected: str) -> None:
    assert_slots(cron(expression), after, moments(expected))


def test_a_leap_day_is_found_from_every_year() -> None:
    schedule = cron("0 0 29 2 *", timezone="America/New_York")
    for year in range(1900, 2400):
        slot = schedule.next(moment(f"{year}-03-01"))
        assert slot is not None
        assert (slot.month, slot.day, slot.year - year in range(1, 9)) == (2, 29, True)
