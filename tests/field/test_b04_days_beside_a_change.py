"""The days next to a clock change.

Jobs nowhere near the changed hour ran an hour off on the first day, or for the rest of the season. A scheduler swung
between two next-run values for ever. A weekly job was a week late, because "plus 24 hours" jumped over a day of 23. And
intervals and "in two hours" were added on the wall clock, so that they took one real hour, or three.

We promise: a slot is looked up by the offset of its own instant, so that it is right on the first day; asked from
anywhere between two slots, the answer is the same; intervals and delays are real time, whatever the zone.
"""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from cronoq_django import cron, every
from cronoq_django.models import Job, Run
from cronoq_django.schedules import Terms
from cronoq_django.store.session import connect
from tests import tasks
from tests.field.walks import DAY, HOUR, MINUTE, assert_slots, moment, moments, ticked

ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"]
ELAPSED = [("2025-03-09T06:30", "2025-03-09T08:30"), ("2025-11-02T04:30", "2025-11-02T06:30")]
ROWS = [
    ("0 7,9 * * *", "America/Los_Angeles", "2025-03-08T14:00", "2025-03-08T15:00 17:00 09T14:00 16:00 10T14:00"),
    ("0,15,30,45 6-22 * * *", "Europe/Brussels", "2025-10-25T20:30", "2025-10-25T20:45 26T05:00 05:15 05:30"),
    ("20 */4 * * *", "America/Los_Angeles", "2025-03-09T04:00", "2025-03-09T04:20 08:20 11:20 15:20"),
    ("0 12 * * 0", "Europe/Berlin", "2025-03-27T11:00", "2025-03-30T10:00 04-06T10:00"),
    ("0 8 * * 1-5", "America/New_York", "2025-10-31T11:00", "2025-10-31T12:00 11-03T13:00 04T13:00"),
    ("* * * */3 *", "America/New_York", "2015-02-15T05:00", "2015-04-01T04:00 04:01"),
]


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), ROWS)
def test_slots_beside_a_change(expression: str, zone: str, after: str, expected: str) -> None:
    assert_slots(cron(expression, timezone=zone), after, moments(expected))


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), ROWS)
def test_asked_from_anywhere_between_two_slots_the_answer_is_the_same(
    expression: str, zone: str, after: str, expected: str
) -> None:
    schedule = cron(expression, timezone=zone)
    start = moment(after)
    for slot in moments(expected):
        for part in range(20):
            asked = start + (slot - start) * part / 20
            assert schedule.next(asked) == schedule.next(asked.astimezone(ZoneInfo(zone))) == slot
        start = slot


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), ROWS)
def test_a_leader_that_looks_every_20_seconds_fires_the_same(
    expression: str, zone: str, after: str, expected: str
) -> None:
    slots = moments(expected)
    begin = max(moment(after), slots[0] - HOUR)
    assert ticked(Terms(cron(expression, timezone=zone)), begin, slots[-1] + 20 * timedelta(seconds=1)) == slots


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("start", "due"), ELAPSED)
def test_two_hours_are_two_hours(start: str, due: str, zone: str) -> None:
    anchor = moment(start).astimezone(ZoneInfo(zone))
    schedule = every(hours=2, anchor=anchor)
    assert schedule.next(anchor) == moment(due)
    assert schedule.upcoming(anchor, 12) == [moment(start) + n * 2 * HOUR for n in range(1, 13)]
    assert schedule.previous(moment(due) + MINUTE) == moment(due)
    job = Job(kind="every", every=2 * HOUR, anchor=anchor, timezone=zone)
    assert job.schedule.next(anchor) == moment(due)
    assert ticked(job.terms, anchor, moment(start) + DAY) == [moment(start) + n * 2 * HOUR for n in range(1, 13)]


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("start", "due"), ELAPSED)
def test_a_delay_of_two_hours_is_two_hours(start: str, due: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: moment(start))
    with timezone.override(zone):
        result = tasks.add.using(run_after=2 * HOUR).enqueue(1)
    assert Run.objects.get(pk=result.id).due_at == moment(due)


@pytest.mark.django_db
@pytest.mark.parametrize(("start", "length"), [(start, length) for start, _ in ELAPSED for length in (2 * HOUR, DAY)])
def test_a_retry_in_a_day_is_24_hours_away(start: str, length: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL adds a *day* on the wall clock of the session's zone, which a client's environment may set."""
    monkeypatch.setenv("PGTZ", "America/New_York")
    session = connect("default", name="delay")
    try:
        added = session.execute("SELECT %s::timestamptz + %s::interval", (moment(start), length)).fetchone()
    finally:
        session.close()
    assert added is not None
    due: datetime = added[0]
    assert due - moment(start) == length
