"""Intervals, single moments, and no schedule at all."""

import pickle
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from cronoq_django.schedules import At, Every, Manual, Schedule, ScheduleError, at, cron, every, jittered, manual

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
TICK = timedelta(microseconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("anchor", "due"), [("2025-03-09T06:30", "2025-03-09T08:30"), ("2025-11-02T04:30", "2025-11-02T06:30")]
)
def test_two_hours_are_two_real_hours(anchor: str, due: str) -> None:
    """Added on the wall clock, two hours took one on the spring night and three on the autumn one."""
    local = utc(anchor).astimezone(ZoneInfo("America/New_York"))
    assert every(hours=2, anchor=local).next(local) == utc(due)


def test_slots_count_from_the_anchor_which_is_none_itself() -> None:
    """Counted from the process start, a weekly interval never came due where deploys were weekly."""
    schedule = every(seconds=30, anchor=utc("2026-01-01"))
    assert schedule.upcoming(FIRST, 2) == [utc("2026-01-01T00:00:30"), utc("2026-01-01T00:01:00")]
    assert schedule.next(utc("2026-01-01T00:00:30")) == utc("2026-01-01T00:01:00")
    assert schedule.next(utc("2026-01-01T00:00:30") - TICK) == utc("2026-01-01T00:00:30")
    assert schedule.previous(utc("2026-01-01T00:01:00")) == utc("2026-01-01T00:00:30")
    assert schedule.previous(utc("2026-01-01T00:01:00") + TICK) == utc("2026-01-01T00:01:00")
    assert schedule.previous(utc("2026-01-01T00:00:30")) is None
    assert schedule.previous(FIRST) is None


def test_no_drift_over_a_century() -> None:
    schedule = every(timedelta(seconds=1, microseconds=333_333), anchor=utc("2026-01-01"))
    slot = schedule.next(utc("2126-01-01"))
    assert slot is not None
    assert (slot - utc("2026-01-01")) % schedule.interval == timedelta(0)
    assert schedule.previous(slot) == slot - schedule.interval


def test_counting_costs_nothing_however_long_it_was() -> None:
    schedule = every(seconds=1, anchor=utc("2026-01-01"))
    assert schedule.count(utc("2026-01-01"), utc("2026-04-01"), limit=10**9) == 90 * 86_400
    assert schedule.count(utc("2026-01-01"), utc("2026-04-01"), limit=10_000) == 10_000
    assert schedule.count(utc("2025-01-01"), utc("2026-01-01T00:00:02"), limit=10) == 2
    assert schedule.count(utc("2026-01-02"), utc("2026-01-01"), limit=10) == 0
    walked = sum(
        1 for slot in islice(schedule.walk(utc("2026-01-01T00:00:10")), 99) if slot <= utc("2026-01-01T00:00:20")
    )
    assert schedule.count(utc("2026-01-01T00:00:10"), utc("2026-01-01T00:00:20"), limit=99) == walked == 10


@pytest.mark.parametrize(
    "build",
    [
        every,
        lambda: every(seconds=0.5),
        lambda: every(seconds=-5),
        lambda: every(timedelta(0)),
        lambda: every(timedelta(days=40_000)),
        lambda: every(days=10**12),
        lambda: every(days=float("nan")),
        lambda: every(60),
        lambda: every(minutes="5"),
        lambda: every(timedelta(hours=1), minutes=5),
        lambda: Every(None),
    ],
)
def test_intervals_from_a_second_to_a_century(build: object) -> None:
    """An interval of zero, or of microseconds, is a loop that never ends."""
    with pytest.raises(ScheduleError) as refused:
        build()  # type: ignore[operator]
    assert refused.value.field == "every"


def test_a_declaration_gets_its_anchor_later() -> None:
    declared = every(timedelta(hours=2))
    assert declared == every(hours=2) == every(minutes=120)
    for ask in (declared.next, declared.previous):
        with pytest.raises(ScheduleError) as refused:
            ask(utc("2026-01-01"))
        assert refused.value.field == "anchor"
    anchored = declared.anchored(utc("2026-01-01"))
    assert anchored == every(hours=2, anchor=utc("2026-01-01"))
    assert anchored.next(utc("2026-01-01")) == utc("2026-01-01T02:00")
    with pytest.raises(ScheduleError):
        declared.anchored(datetime(2026, 1, 1))  # noqa: DTZ001


def test_once_is_one_slot() -> None:
    moment = utc("2026-01-01T12:00")
    schedule = at(moment.astimezone(ZoneInfo("Asia/Tokyo")))
    assert schedule == At(moment)
    assert schedule.run_at.tzinfo is UTC
    assert schedule.upcoming(FIRST, 5) == [moment]
    assert schedule.next(moment) is None
    assert schedule.previous(moment) is None
    assert schedule.previous(LAST) == moment
    assert schedule.count(FIRST, LAST, limit=10) == 1
    with pytest.raises(ScheduleError) as refused:
        at(datetime(2026, 1, 1))  # noqa: DTZ001
    assert refused.value.field == "run_at"


def test_manual_never_fires() -> None:
    assert manual().next(FIRST) is None
    assert manual().previous(LAST) is None
    assert manual() == Manual()


@pytest.mark.parametrize(
    "schedule", [cron("0 3 * * *"), every(hours=2, anchor=utc("2026-01-01")), at(utc("2026-01-01")), manual()]
)
def test_all_schedules_have_one_shape(schedule: Schedule) -> None:
    assert isinstance(schedule, Schedule)
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert hash(pickle.loads(pickle.dumps(schedule))) == hash(schedule)
    for ask in (schedule.next, schedule.previous):
        with pytest.raises(ScheduleError):
            ask(datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(ScheduleError):
            ask(None)  # type: ignore[arg-type]
        assert ask(LAST) is None or ask(LAST) < LAST
        assert ask(FIRST) is None or ask(FIRST) > FIRST
    assert schedule.next(LAST) is None
    assert schedule.next(datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))) is None
    assert schedule.previous(datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))) is None


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (every(minutes=5), "every 5 minutes"),
        (every(hours=1), "every hour"),
        (every(hours=36), "every 36 hours"),
        (every(days=7), "every 7 days"),
        (every(seconds=90), "every 90 seconds"),
        (every(seconds=1.5), "every 1.5 seconds"),
        (at(utc("2026-01-01T12:00")), "once, at 2026-01-01 12:00:00Z"),
        (manual(), "only by hand"),
    ],
)
def test_explained_in_words(schedule: Schedule, words: str) -> None:
    assert schedule.explain() == words


def test_jitter_is_the_same_for_everyone_and_spreads() -> None:
    """A leader that repeats a step whose commit was lost must find the due time of the row it may have written."""
    slot, jitter = utc("2026-01-01T12:00"), timedelta(seconds=60)
    jobs = [UUID(int=number) for number in range(500)]
    offsets = [jittered(job, slot, jitter) - slot for job in jobs]
    assert offsets == [jittered(job, slot.astimezone(ZoneInfo("Asia/Tokyo")), jitter) - slot for job in jobs]
    assert all(timedelta(0) <= offset < jitter for offset in offsets)
    assert 20 < sum(offset.total_seconds() for offset in offsets) / 500 < 40
    assert jittered(jobs[0], slot, jitter) - slot != jittered(jobs[0], slot + jitter, jitter) - slot - jitter
    assert jittered(UUID(int=1), slot, jitter) == utc("2026-01-01T12:00:00") + offsets[1]
    assert jittered(jobs[0], slot, timedelta(0)) == slot
    assert jittered(jobs[0], LAST, jitter) == LAST
    with pytest.raises(ScheduleError) as refused:
        jittered(jobs[0], slot, timedelta(seconds=-1))
    assert refused.value.field == "jitter"
    with pytest.raises(ScheduleError):
        jittered(jobs[0], datetime(2026, 1, 1), jitter)  # noqa: DTZ001
