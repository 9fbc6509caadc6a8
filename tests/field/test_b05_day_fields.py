"""Day of month against day of week.

People met all three readings: both fields must match; either may; and "restricted", guessed from the size of the parsed
set instead of from the text, so that `1-31` and `*/2` behaved unlike the cron on which they had been tried.

We promise Debian's: if the *text* of either day field starts with `*`, both must match; else one is enough. The admin
says so beside the field.
"""

from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse

from cronoq_django import cron
from tests.field.walks import DAY, assert_slots, moment, moments, until


@pytest.mark.parametrize(
    ("expression", "after", "at", "expected"),
    [
        ("30 4 1,15 * 5", "2025-08-01", "04:30", "2025-08-01 08-08 08-15 08-22 08-29 09-01 09-05 09-12"),
        ("0 16 1,2,3 * FRI", "2023-05-01", "16:00", "2023-05-01 05-02 05-03 05-05 05-12 05-19 05-26 06-01"),
        ("0 0 */2 * 1", "2025-01-01", "00:00", "2025-01-13 01-27 02-03 02-17"),
        ("0 9 1-31 * 1", "2026-05-01", "09:00", "2026-05-01 05-02 05-03 05-04"),
        ("0 9 */2 * 1", "2026-05-01", "09:00", "2026-05-11 05-25 06-01"),
    ],
)
def test_the_text_decides(expression: str, after: str, at: str, expected: str) -> None:
    assert_slots(cron(expression), after, moments(expected, at=at))


@pytest.mark.parametrize(
    ("date", "weekday", "matches"),
    [
        ("*", "*", lambda day: True),
        ("13", "*", lambda day: day.day == 13),
        ("*", "5", lambda day: day.isoweekday() == 5),
        ("13", "5", lambda day: day.day == 13 or day.isoweekday() == 5),
        ("1-31", "5", lambda day: True),
        ("13", "0-6", lambda day: True),
        ("13", "1-7", lambda day: True),
        ("*/2", "5", lambda day: day.day % 2 == 1 and day.isoweekday() == 5),
        ("1-31/2", "5", lambda day: day.day % 2 == 1 or day.isoweekday() == 5),
        ("13", "*/2", lambda day: day.day == 13 and day.isoweekday() in (7, 2, 4, 6)),
        ("*/2", "*/2", lambda day: day.day % 2 == 1 and day.isoweekday() in (7, 2, 4, 6)),
        ("L", "1", lambda day: (day + DAY).day == 1 or day.isoweekday() == 1),
    ],
)
def test_every_day_of_three_years(date: str, weekday: str, matches) -> None:
    first = moment("2023-12-31")
    days: list[datetime] = [first + n * DAY for n in range(1, 1_097)]
    expected = [day for day in days if matches(day)]
    assert list(until(cron(f"0 0 {date} * {weekday}"), first, days[-1])) == expected


@pytest.mark.django_db
def test_the_admin_says_so(admin_client: Client) -> None:
    page = admin_client.get(reverse("admin:cronoq_job_add")).content.decode()
    assert "If either day field starts with *, both must match; else one is enough." in page
