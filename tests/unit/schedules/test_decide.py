"""Decisions: downtime, lateness, overlap, beginnings and ends."""

import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import process_time

import pytest

from cronoq_django.schedules import Cron, ScheduleError, Terms, at, cron, decide, every, first_slot, manual

MINUTE = timedelta(minutes=1)
MINUTELY = Terms(cron("* * * * *"), overlap="allow")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def terms(**changes: object) -> Terms:
    return replace(MINUTELY, **changes)  # type: ignore[arg-type]


class TestDowntime:
    """A minutely job, and no leader from 09:00:30 to 11:00:30: the slots 09:01 … 11:00 were missed."""

    due, now = utc("2026-01-01T09:01"), utc("2026-01-01T11:00:30")

    def test_skip_makes_no_late_runs(self) -> None:
        decision = decide(terms(misfire="skip"), self.due, self.now)
        assert decision.fire == ()
        assert decision.missed == 120
        assert decision.next_slot == utc("2026-01-01T11:01")
        [batch] = decision.skipped
        assert (batch.slot, batch.reason, batch.count) == (utc("2026-01-01T11:00"), "misfire", 120)
        assert decision.explanation == batch.why
        assert decision.explanation == (
            "120 slots missed between 2026-01-01 09:01:00Z and 2026-01-01 11:00:00Z because the scheduler was down "
            "(misfire=skip)"
        )

    def test_latest_makes_one_run_with_the_newest_slot(self) -> None:
        """Queued once per missed minute, mails were sent many times over after each deploy."""
        decision = decide(terms(misfire="latest"), self.due, self.now)
        assert decision.fire == (utc("2026-01-01T11:00"),)
        assert decision.missed == 119
        assert [(batch.slot, batch.count) for batch in decision.skipped] == [(utc("2026-01-01T10:59"), 119)]
        assert decision.next_slot == utc("2026-01-01T11:01")
        assert decision.explanation.startswith("119 slots missed between 2026-01-01 09:01:00Z and 2026-01-01 10:59:00Z")
        assert decision.explanation.endswith("fired the newest, 2026-01-01 11:00:00Z: 30 seconds late")

    @pytest.mark.parametrize("limit", [1, 10, 119])
    def test_all_makes_the_newest_oldest_first_and_says_how_many_were_dropped(self, limit: int) -> None:
        decision = decide(terms(misfire="all", misfire_limit=limit), self.due, self.now)
        assert decision.fire == tuple(utc("2026-01-01T11:00") - k * MINUTE for k in reversed(range(limit)))
        assert decision.missed == 120 - limit
        assert decision.skipped[0].slot == decision.fire[0] - MINUTE

    def test_all_with_room_for_all_misses_none(self) -> None:
        decision = decide(terms(misfire="all", misfire_limit=120), self.due, self.now)
        assert (len(decision.fire), decision.missed, decision.skipped) == (120, 0, ())

    def test_a_window_bounds_how_late_a_run_may_be(self) -> None:
        window = timedelta(minutes=5)
        assert len(decide(terms(misfire="all", misfire_window=window), self.due, self.now).fire) == 5
        assert len(decide(terms(misfire="skip", misfire_window=window), self.due, self.now).fire) == 5
        assert len(decide(terms(misfire="latest", misfire_window=window), self.due, self.now).fire) == 1
        short = decide(terms(misfire="latest", misfire_window=timedelta(seconds=20)), self.due, self.now)
        assert (short.fire, short.missed) == ((), 120)

    def test_a_window_as_wide_as_the_downtime_is_no_burst(self) -> None:
        decision = decide(terms(misfire="skip", misfire_window=timedelta(days=1)), self.due, self.now)
        assert len(decision.fire) == 10

    @pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
    def test_no_policy_leaves_the_job_stuck(self, misfire: str) -> None:
        """A job more than 100 slots behind was never started again."""
        decision = decide(terms(misfire=misfire), self.due, self.now)
        assert decision.next_slot is not None
        on = decide(terms(misfire=misfire), decision.next_slot, decision.next_slot + timedelta(seconds=1))
        assert on.fire == (decision.next_slot,)
        assert on.explanation == "fired 2026-01-01 11:01:00Z: on time"

    @pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
    def test_repeated_after_a_lost_commit_it_decides_the_same(self, misfire: str) -> None:
        assert decide(terms(misfire=misfire), self.due, self.now) == decide(terms(misfire=misfire), self.due, self.now)

    @pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
    def test_every_slot_is_fired_or_missed_exactly_once(self, misfire: str) -> None:
        for seconds in range(0, 7200, 97):
            now = self.due + timedelta(seconds=seconds)
            decision = decide(terms(misfire=misfire), self.due, now)
            assert len(decision.fire) + decision.missed == MINUTELY.schedule.count(self.due - MINUTE, now, limit=999)
            assert not {batch.slot for batch in decision.skipped} & set(decision.fire)
            assert decision.next_slot == MINUTELY.schedule.next(now)


@pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
@pytest.mark.parametrize("schedule", [cron("* * * * *", timezone="Europe/Warsaw"), cron("* * * * * *"), "every"])
def test_ninety_days_are_decided_at_once(misfire: str, schedule: Cron | str) -> None:
    """Counting all of it took longer than the start-up; keeping it took the memory."""
    due = utc("2026-01-01T00:01")
    one = every(seconds=1, anchor=due - timedelta(seconds=1)) if schedule == "every" else schedule
    now = due + timedelta(days=90, seconds=30)
    decide(terms(schedule=one, misfire=misfire), due, now)
    tracemalloc.start()
    decide(terms(schedule=one, misfire=misfire), due, now)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    began = process_time()
    decision = decide(terms(schedule=one, misfire=misfire), due, now)
    assert process_time() - began < 0.7
    assert peak < 1_000_000
    assert decision.missed == 10_000
    assert decision.explanation.startswith("10,000+ slots missed")
    assert len(decision.fire) <= 16
    assert decision.next_slot is not None
    assert decision.next_slot > now


@pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
class TestPunctual:
    def test_a_run_less_than_two_seconds_late_is_on_time(self, misfire: str) -> None:
        """A default grace of one second threw a run away that was 1.8 s late."""
        due = utc("2026-01-01T09:00")
        decision = decide(terms(misfire=misfire), due, due + timedelta(seconds=1.8))
        assert (decision.fire, decision.skipped, decision.missed) == ((due,), (), 0)
        assert decision.explanation == "fired 2026-01-01 09:00:00Z: on time"

    def test_a_fast_job_noticed_a_little_late_keeps_all_its_slots(self, misfire: str) -> None:
        due = utc("2026-01-01T09:00")
        fast = terms(schedule=every(seconds=5, anchor=due - timedelta(seconds=5)), misfire=misfire, misfire_limit=1)
        decision = decide(fast, due, due + timedelta(seconds=12))
        assert decision.fire == tuple(due + timedelta(seconds=5) * k for k in range(3))
        assert decision.missed == 0
        assert decision.explanation == "fired 3 slots from 2026-01-01 09:00:00Z to 2026-01-01 09:00:10Z: on time"

    def test_fifteen_seconds_are_the_limit(self, misfire: str) -> None:
        due = utc("2026-01-01T09:00")
        assert decide(terms(misfire=misfire), due, due + timedelta(seconds=15)).fire == (due,)
        late = decide(terms(misfire=misfire), due, due + timedelta(seconds=15, microseconds=1))
        assert (late.fire == ()) == (misfire == "skip")


def test_with_skip_a_window_may_also_be_stricter() -> None:
    due = utc("2026-01-01T09:00")
    strict = terms(misfire="skip", misfire_window=timedelta(seconds=1))
    assert decide(strict, due, due + timedelta(seconds=1)).fire == (due,)
    assert decide(strict, due, due + timedelta(seconds=1.8)).missed == 1


def test_frozen_for_ninety_seconds_the_newest_or_every_slot_runs() -> None:
    due, now = utc("2026-01-01T09:00"), utc("2026-01-01T09:01:31")
    assert decide(terms(misfire="latest"), due, now).fire == (due + MINUTE,)
    assert decide(terms(misfire="all"), due, now).fire == (due, due + MINUTE)


def test_one_late_slot_says_how_late_and_why_it_ran() -> None:
    due = utc("2026-01-01T09:00")
    assert decide(terms(), due, due + timedelta(seconds=30)).explanation == (
        "fired 2026-01-01 09:00:00Z: 30 seconds late (misfire=latest)"
    )


class TestOverlap:
    due, now = utc("2026-01-01T09:00"), utc("2026-01-01T09:00:12")
    fast = Terms(every(seconds=5, anchor=utc("2026-01-01T08:59:55")))

    def decide(self, open_runs: int, **changes: object):
        return decide(replace(self.fast, **changes), self.due, self.now, open_runs=open_runs)  # type: ignore[arg-type]

    def test_skip_fires_as_many_as_there_is_room_for(self) -> None:
        """Never two at once; the slots left out are recorded, with the reason."""
        decision = self.decide(0)
        assert decision.fire == (self.due,)
        assert [(entry.slot, entry.reason, entry.count) for entry in decision.skipped] == [
            (self.due + timedelta(seconds=5), "overlap", 1),
            (self.due + timedelta(seconds=10), "overlap", 1),
        ]
        assert decision.missed == 0
        assert decision.explanation.endswith("2 slots skipped: 1 unfinished, concurrency=1 (overlap=skip)")
        assert len(self.decide(0, concurrency=2).fire) == 2
        assert len(self.decide(1, concurrency=3).fire) == 2

    @pytest.mark.parametrize("open_runs", [1, 7])
    def test_a_hung_run_leaves_no_room_but_the_job_goes_on(self, open_runs: int) -> None:
        decision = self.decide(open_runs)
        assert decision.fire == ()
        assert len(decision.skipped) == 3
        assert decision.next_slot == self.due + timedelta(seconds=15)

    def test_allow_fires_all(self) -> None:
        assert len(self.decide(7, overlap="allow").fire) == 3

    @pytest.mark.parametrize("overlap", ["queue", "replace"])
    def test_what_has_no_room_waits(self, overlap: str) -> None:
        decision = self.decide(7, overlap=overlap)
        assert (len(decision.fire), len(decision.wait), decision.skipped) == (0, 3, ())
        assert decision.explanation == (
            f"3 slots made to wait for room: 7 unfinished, concurrency=1 (overlap={overlap})"
        )
        some = self.decide(1, overlap=overlap, concurrency=3)
        assert (len(some.fire), len(some.wait)) == (2, 1)

    def test_many_are_recorded_together(self) -> None:
        decision = self.decide(1, schedule=every(seconds=1, anchor=utc("2026-01-01T08:59:55")))
        assert [(entry.slot, entry.reason, entry.count) for entry in decision.skipped] == [(self.now, "overlap", 13)]

    def test_slots_to_be_made_up_for_wait_for_each_other_instead_of_being_skipped(self) -> None:
        """Asked to make up for all, a job that was also not to overlap dropped all but the first."""
        late = replace(MINUTELY, overlap="skip", misfire="all", misfire_limit=50)
        decision = decide(late, utc("2026-01-01T09:01"), utc("2026-01-01T11:00:03"))
        assert decision.fire == (utc("2026-01-01T10:11"),)
        assert decision.wait == tuple(utc("2026-01-01T10:12") + k * MINUTE for k in range(48))
        assert [(entry.slot, entry.reason, entry.count) for entry in decision.skipped] == [
            (utc("2026-01-01T10:10"), "misfire", 70),
            (utc("2026-01-01T11:00"), "overlap", 1),  # this one is on time
        ]


class TestBeginningAndEnd:
    daily = Terms(cron("0 15 * * *"))

    def test_not_before_starts_at_which_may_be_a_slot(self) -> None:
        """With a start at 14:00 and first seen at 14:02 a job was run at once instead of at 15:00."""
        from_14 = replace(self.daily, starts_at=utc("2026-01-08T14:00"))
        assert first_slot(from_14, utc("2026-01-08T14:02")) == utc("2026-01-08T15:00")
        assert first_slot(from_14, utc("2025-01-08T14:02")) == utc("2026-01-08T15:00")
        from_15 = replace(self.daily, starts_at=utc("2026-01-08T15:00"))
        assert first_slot(from_15, utc("2025-01-01")) == utc("2026-01-08T15:00")
        assert first_slot(from_15, utc("2026-01-08T15:00")) == utc("2026-01-09T15:00")

    def test_not_after_ends_at_which_may_be_a_slot(self) -> None:
        until = replace(self.daily, ends_at=utc("2026-01-09T15:00"))
        assert first_slot(until, utc("2026-01-08T16:00")) == utc("2026-01-09T15:00")
        assert first_slot(until, utc("2026-01-09T15:00")) is None
        last = decide(until, utc("2026-01-09T15:00"), utc("2026-01-09T15:00:01"))
        assert (last.fire, last.next_slot) == ((utc("2026-01-09T15:00"),), None)

    def test_slots_missed_around_the_end(self) -> None:
        until = terms(ends_at=utc("2026-01-01T09:05"), misfire="all")
        decision = decide(until, utc("2026-01-01T09:01"), utc("2026-01-01T11:00"))
        assert decision.fire == tuple(utc("2026-01-01T09:01") + k * MINUTE for k in range(5))
        assert decision.next_slot is None
        ended = decide(until, utc("2026-01-01T09:06"), utc("2026-01-01T11:00"))
        assert (ended.fire, ended.skipped, ended.next_slot) == ((), (), None)
        assert ended.explanation == "ended at 2026-01-01 09:05:00Z"

    def test_a_slot_in_the_future_waits(self) -> None:
        """A clock set back is no reason to fire, and none to forget the slot."""
        decision = decide(MINUTELY, utc("2026-01-01T09:00"), utc("2026-01-01T07:00"))
        assert (decision.fire, decision.next_slot) == ((), utc("2026-01-01T09:00"))

    def test_once_fires_once(self) -> None:
        moment = utc("2026-01-01T09:00")
        decision = decide(Terms(at(moment)), moment, moment + timedelta(days=3))
        assert (decision.fire, decision.next_slot, decision.missed) == ((moment,), None, 0)
        skipped = decide(Terms(at(moment), misfire="skip"), moment, moment + timedelta(days=3))
        assert (skipped.fire, skipped.next_slot, skipped.missed) == ((), None, 1)

    def test_manual_is_never_planned(self) -> None:
        assert first_slot(Terms(manual()), utc("2026-01-01")) is None

    def test_a_planned_slot_fires_although_the_tz_data_changed_since(self) -> None:
        planned = utc("2026-01-01T14:00")
        decision = decide(self.daily, planned, planned + timedelta(seconds=1))
        assert (decision.fire, decision.next_slot) == ((planned,), utc("2026-01-01T15:00"))


@pytest.mark.parametrize(
    ("old", "new", "changed", "due"),
    [
        ("0 1 * * *", "0 5 * * *", "2026-01-08T12:00", "2026-01-09T05:00"),
        ("0 23 * * *", "0 5 * * *", "2026-01-08T12:00", "2026-01-09T05:00"),
        ("30 11 * * 5", "0 11 * * 5", "2026-01-08T23:49", "2026-01-09T11:00"),
    ],
)
def test_an_edited_schedule_never_fires_for_the_past(old: str, new: str, changed: str, due: str) -> None:
    """Moved to an earlier hour, a daily job ran at once and sent a thousand mails."""
    assert first_slot(Terms(cron(old)), utc(changed)) != utc(due)
    assert first_slot(Terms(cron(new)), utc(changed)) == utc(due)


@pytest.mark.parametrize(
    ("timezone", "due"), [("America/New_York", "2026-01-08T14:00"), ("Asia/Tokyo", "2026-01-09T00:00")]
)
def test_an_edited_zone_counts_from_the_edit(timezone: str, due: str) -> None:
    assert first_slot(Terms(cron("0 9 * * *", timezone=timezone)), utc("2026-01-08T10:00")) == utc(due)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("misfire", "once"),
        ("overlap", "never"),
        ("misfire_limit", 0),
        ("concurrency", 0),
        ("starts_at", datetime(2026, 1, 1)),  # noqa: DTZ001
        ("ends_at", datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
)
def test_terms_that_cannot_be_kept_are_refused(field: str, value: object) -> None:
    with pytest.raises(ScheduleError) as refused:
        terms(**{field: value})
    assert refused.value.field == field
