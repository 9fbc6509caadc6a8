"""Clock changes, zone by zone: answers computed by brute force over UTC minutes and by another cron library."""

import struct
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from cronoq_django.schedules import Cron, ScheduleError, cron
from cronoq_django.schedules.cron import LocalTimes
from cronoq_django.schedules.dst import walk, walk_back


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots(day: str, texts: str) -> list[datetime]:
    """ "09T07:00 07:05 2026-01-01T00:00" near 2025-03-08: a day counts for the times after it, too."""
    found = []
    for text in texts.split():
        *prefix, time = text.split("T")
        day = day[: -len(prefix[0])] + prefix[0] if prefix else day
        found.append(utc(f"{day}T{time}"))
    return found


def assert_walks(schedule: Cron, after: datetime, wanted: list[datetime]) -> None:
    """Forwards and backwards, and from each slot on."""
    assert schedule.upcoming(after, len(wanted)) == wanted
    back = schedule.walk_back(wanted[-1] + timedelta.resolution)
    assert list(islice(back, len(wanted))) == wanted[::-1]
    assert next(back, after) <= after
    for earlier, later in pairwise(wanted):
        assert schedule.next(earlier) == later
        assert schedule.previous(later) == earlier


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("30 2 * * *", "America/New_York", "2025-03-08T12:00", "09T07:00 10T06:30 11T06:30"),
        ("30 2 * * *", "America/New_York", "2025-03-09T06:59:30", "09T07:00 10T06:30"),
        ("30 2 * * *", "America/New_York", "2025-03-09T07:00", "10T06:30"),
        ("0 2,3 * * *", "America/New_York", "2025-03-09T05:00", "09T07:00 10T06:00 07:00"),
        ("15 1 * * *", "Europe/London", "2025-03-29T12:00", "30T01:00 31T00:15"),
        ("*/5 * * * *", "America/New_York", "2025-03-09T06:52", "09T06:55 07:00 07:05 07:10"),
        ("*/10 30 2 * * *", "America/New_York", "2025-03-09T05:00", "09T07:00 10T06:30 06:30:10"),
    ],
)
def test_a_skipped_local_time_is_one_slot_right_after_the_gap(
    expression: str, zone: str, after: str, expected: str
) -> None:
    """Aimed at a time that does not exist, "next" jumped ten months, went back before its start, or lost the day."""
    wanted = slots(after[:10], expected)
    assert_walks(cron(expression, timezone=zone), utc(after), wanted)


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("30 1 * * *", "America/New_York", "2025-11-02T04:00", "02T05:30 03T06:30 04T06:30"),
        ("0 * * * *", "America/Los_Angeles", "2025-11-02T07:30", "02T08:00 09:00 10:00 11:00"),
        ("*/15 * * * *", "America/New_York", "2025-11-02T05:15", "02T05:30 05:45 06:00 06:15 06:30 06:45 07:00 07:15"),
        ("0 17 * * *", "America/New_York", "2025-11-02T12:00", "02T22:00 03T22:00"),
        ("*/30 30 1 * * *", "America/New_York", "2025-11-02T04:00", "02T05:30 05:30:30 03T06:30"),
    ],
)
def test_the_repeated_hour(expression: str, zone: str, after: str, expected: str) -> None:
    """A daily job ran twice on the autumn night; a job every 15 minutes stood still for a real hour."""
    wanted = slots(after[:10], expected)
    assert_walks(cron(expression, timezone=zone), utc(after), wanted)


def test_ticking_through_the_repeated_hour_finds_each_slot_once() -> None:
    """Asked every 20 seconds, as a scheduler does, a daily job has one slot and a job every 15 minutes twelve."""
    for expression, number in [("30 1 * * *", 1), ("*/15 * * * *", 12)]:
        schedule = cron(expression, timezone="America/New_York")
        now, fired = utc("2025-11-02T05:00"), []
        due = schedule.next(now)
        while now <= utc("2025-11-02T08:00"):
            while due is not None and due <= now:
                fired.append(due)
                due = schedule.next(due)
            now += timedelta(seconds=20)
        assert len(fired) == len(set(fired)) == number
        assert all(later - earlier == timedelta(minutes=15) for earlier, later in pairwise(fired))


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("0 * * * *", "Australia/Lord_Howe", "2025-10-04T14:30", "04T16:00 17:00 18:00"),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T10:00", "04T15:30 05T15:15"),
        ("45 1 * * *", "Australia/Lord_Howe", "2025-04-05T10:00", "05T14:45 06T15:15"),
        ("0 0 * * *", "Africa/Cairo", "2025-04-23T12:00", "23T22:00 24T22:00 25T21:00"),
        ("0 0 * * *", "America/Havana", "2025-03-07T12:00", "08T05:00 09T05:00 10T04:00"),
        ("0 1 * * 0", "America/Sao_Paulo", "2018-11-03T12:00", "04T03:00 11T03:00"),
        ("0 1 4 11 *", "America/Sao_Paulo", "2018-11-04T02:00", "04T03:00 2019-11-04T04:00"),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-02T12:00", "03T03:00 04T03:00 05T02:00"),
        ("0 0 * * *", "Asia/Kathmandu", "2025-01-01T00:00", "01T18:15"),
        # 30 December 2011 did not exist in Samoa: its times are one slot, the first instant of the 31st.
        ("0 9,15 * * *", "Pacific/Apia", "2011-12-29T18:00", "29T19:00 30T01:00 30T10:00 30T19:00 31T01:00"),
        ("0 0 30 12 *", "Pacific/Apia", "2011-01-01T00:00", "2011-12-30T10:00 2012-12-29T10:00"),
        ("0 * * * *", "Pacific/Apia", "2011-12-30T08:30", "30T09:00 10:00 11:00"),
        ("0 2,3,4 * * *", "Antarctica/Troll", "2025-03-30T00:00", "30T01:00 02:00 31T00:00"),
        ("30 1,2 * * *", "Antarctica/Troll", "2025-10-25T23:00", "25T23:30 26T00:30 27T01:30"),
        # In Morocco the clock goes back for Ramadan, and in Ireland winter is the time that is "saved".
        ("30 2 * * *", "Africa/Casablanca", "2025-02-22T12:00", "23T01:30 24T02:30"),
        ("30 2 * * *", "Africa/Casablanca", "2025-04-05T12:00", "06T02:00 07T01:30"),
        ("30 1 * * *", "Europe/Dublin", "2025-03-29T12:00", "30T01:00 31T00:30"),
        ("30 1 * * *", "Europe/Dublin", "2025-10-25T12:00", "26T00:30 27T01:30"),
        # Liberia went to Greenwich time by 44 minutes and 30 seconds, at its midnight.
        ("0 0 * * *", "Africa/Monrovia", "1972-01-06T00:00", "06T00:44:30 07T00:44:30 08T00:00"),
        ("*/30 * * * *", "Africa/Monrovia", "1972-01-07T00:00", "07T00:14:30 07T01:00 07T01:30"),
        # New Year's night: Dhaka ended its one summer time at midnight.
        ("30 23 * * *", "Asia/Dhaka", "2009-12-31T12:00", "31T16:30 2010-01-01T17:30"),
        ("*/30 23 * * *", "Asia/Dhaka", "2009-12-31T12:00", "31T16:00 16:30 17:00 17:30 2010-01-01T17:00"),
    ],
)
def test_half_hours_missing_midnights_and_missing_days(expression: str, zone: str, after: str, expected: str) -> None:
    """Stepping in whole hours lost a slot; truncating to a midnight that is skipped lost a day, a week, a year."""
    wanted = slots(after[:10], expected)
    assert_walks(cron(expression, timezone=zone), utc(after), wanted)


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("0 7,9 * * *", "America/Los_Angeles", "2025-03-08T14:00", "08T15:00 17:00 09T14:00 16:00 10T14:00"),
        ("0,15,30,45 6-22 * * *", "Europe/Brussels", "2025-10-25T20:30", "25T20:45 26T05:00 05:15 05:30"),
        ("20 */4 * * *", "America/Los_Angeles", "2025-03-09T04:00", "09T04:20 08:20 11:20 15:20"),
        ("0 12 * * 0", "Europe/Berlin", "2025-03-27T11:00", "30T10:00 2025-04-06T10:00"),
        ("0 8 * * 1-5", "America/New_York", "2025-10-31T11:00", "31T12:00 2025-11-03T13:00 04T13:00"),
        ("* * * */3 *", "America/New_York", "2015-02-15T05:00", "2015-04-01T04:00 04:01"),
    ],
)
def test_the_days_next_to_a_clock_change(expression: str, zone: str, after: str, expected: str) -> None:
    """Jobs far from the changed hour ran an hour off; a weekly one was a week late: "plus 24 h" passed a short day."""
    wanted = slots(after[:10], expected)
    assert_walks(cron(expression, timezone=zone), utc(after), wanted)


@pytest.mark.parametrize(
    ("expression", "gap", "expected"),
    [
        ("30 2 * * *", "skip", "08T07:30 10T06:30"),
        ("30 2 * * *", "shift", "08T07:30 09T07:00 10T06:30"),
        ("*/30 2 * * *", "", "08T07:00 07:30 10T06:00"),
        ("*/30 2 * * *", "shift", "08T07:00 07:30 09T07:00 10T06:00"),
    ],
)
def test_a_job_may_choose_about_the_gap(expression: str, gap: str, expected: str) -> None:
    wanted = slots("2025-03-08", expected)
    schedule = cron(expression, timezone="America/New_York", dst_gap=gap)
    assert_walks(schedule, utc("2025-03-07T12:00"), wanted)


@pytest.mark.parametrize(
    ("expression", "repeat", "expected"),
    [
        ("30 1 * * *", "last", "01T05:30 02T06:30 03T06:30"),
        ("30 1 * * *", "both", "01T05:30 02T05:30 06:30 03T06:30"),
        ("*/30 1 * * *", "", "01T05:00 05:30 02T05:00 05:30 06:00 06:30 03T06:00"),
        ("*/30 1 * * *", "first", "01T05:00 05:30 02T05:00 05:30 03T06:00"),
        ("30 1 2 11 *", "both", "02T05:30 06:30 2026-11-02T06:30"),
        ("*/30 1 * * *", "last", "01T05:00 05:30 02T06:00 06:30 03T06:00"),
    ],
)
def test_a_job_may_choose_about_the_repeat(expression: str, repeat: str, expected: str) -> None:
    wanted = slots("2025-11-01", expected)
    schedule = cron(expression, timezone="America/New_York", dst_repeat=repeat)
    assert_walks(schedule, utc("2025-10-31T12:00"), wanted)


@pytest.mark.parametrize(("field", "value"), [("dst_gap", "first"), ("dst_repeat", "skip"), ("dst_gap", None)])
def test_choices_that_do_not_exist_are_refused(field: str, value: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        cron("* * * * *", **{field: value})
    assert refused.value.field == field


def test_a_clock_set_back_across_the_new_year() -> None:
    """No zone did so yet, but one may: what repeats is known a year at a time, and the cut must not fall into it."""
    changes = [int(utc(moment).timestamp()) for moment in ("2030-01-20T12:00", "2030-12-31T23:30")]
    offsets = struct.pack(">lbB", 0, 0, 0) + struct.pack(">lbB", 3600, 1, 4) + b"WIN\0SUM\0"
    old = struct.pack(">5s15x6l", b"TZif2", 0, 0, 0, 0, 2, 8) + offsets
    new = struct.pack(">5s15x6l", b"TZif2", 0, 0, 0, 2, 2, 8) + struct.pack(">2q2B", *changes, 1, 0) + offsets
    zone = ZoneInfo.from_file(BytesIO(old + new + b"\nWIN0\n"), key="Test/New_Year")
    times, after, before = LocalTimes("0 0 * * *"), utc("2030-12-30T12:00"), utc("2031-01-02T12:00")
    wanted = slots("2030-12-30", "30T23:00 31T23:00 2031-01-02T00:00")
    assert list(islice(walk(times, zone, "shift", "first", after), 3)) == wanted
    assert list(islice(walk_back(times, zone, "shift", "first", before), 3)) == wanted[::-1]
    wanted = slots("2030-12-30", "30T23:00 2031-01-01T00:00 2031-01-02T00:00")
    assert list(islice(walk(times, zone, "shift", "last", after), 3)) == wanted
    assert list(islice(walk_back(times, zone, "shift", "last", before), 3)) == wanted[::-1]


def test_daily_jobs_never_pause_for_more_than_a_day_and_the_change() -> None:
    for zone in ("America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Europe/Dublin", "America/Havana"):
        year = cron("30 2 * * *", timezone=zone).upcoming(utc("2025-01-01"), 366)
        distances = {later - earlier for earlier, later in pairwise(year)}
        assert max(distances) <= timedelta(hours=25)
        assert min(distances) >= timedelta(hours=22)


def test_asked_within_the_hour_that_comes_again_a_rare_schedule_finds_it() -> None:
    """The search began behind the repeated hour, and took that for free of slots too: the job ran four months later."""
    change = datetime(2006, 9, 21, 21, tzinfo=UTC)  # Cairo's clock goes from midnight back to eleven
    last = cron("*/20 * 21 */4 *", timezone="Africa/Cairo", dst_repeat="last")
    assert last.next(change - timedelta.resolution) == change
    assert last.next(change - timedelta(minutes=10)) == change
    first = cron("*/20 * 21 */4 *", timezone="Africa/Cairo", dst_repeat="first")
    assert first.previous(change + timedelta(minutes=30)) == change - timedelta(minutes=20)
    assert first.previous(change + timedelta(microseconds=1)) == change - timedelta(minutes=20)
