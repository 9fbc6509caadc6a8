"""After a deploy or a weekend off, minutely jobs were queued once for each missed minute, and mails sent many times.

Elsewhere a job more than a hundred slots behind was never started again, and a default grace of a second threw away a
run that was 1.8 seconds late. What becomes of missed slots is the job's to say, and it says what became of them.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.fault.clock import needs_a_compiler

from .conftest import Town

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), needs_a_compiler]

MINUTELY = {"cron": "* * * * *"}


def test_b09_two_hours_of_minutes_were_missed(
    town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    town.set("2026-01-08 09:00:30")
    town.job("skip", **MINUTELY, misfire="skip")
    town.job("latest", **MINUTELY, misfire="latest")
    town.job("all", **MINUTELY, misfire="all", misfire_limit=10)
    first = leader()
    wait_until(lambda: {town.next(name) for name in ("skip", "latest", "all")} == {"01-08 09:01:00"})
    first.kill()
    town.set("2026-01-08 11:00:30")
    leader()
    wait_until(lambda: {town.next(name) for name in ("skip", "latest", "all")} == {"01-08 11:01:00"})
    assert town.slots("skip") == []
    assert town.slots("latest") == ["01-08 11:00:00"]
    assert town.slots("all") == [f"01-08 10:{minute}:00" for minute in range(51, 60)] + ["01-08 11:00:00"]
    made = town.query("SELECT scheduled_for FROM cronoq_run WHERE job_name = 'all' AND status <> 'skipped' ORDER BY id")
    assert made == sorted(made)  # the oldest first
    assert [town.state(name, "missed_count") for name in ("skip", "latest", "all")] == [120, 119, 110]
    assert town.state("all", "explanation").startswith(
        "110 slots missed between 2026-01-08 09:01:00Z and 2026-01-08 10:50"
    )
    reason = town.query("SELECT reason, error FROM cronoq_run WHERE job_name = 'skip' AND status = 'skipped'")
    assert [(why, said[:16]) for why, said in reason] == [("misfire", "120 slots missed")]


@pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
def test_b09_ninety_days_of_minutes_were_missed(
    misfire: str, town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    town.set("2026-01-08 09:00:30")
    town.job("minutely", **MINUTELY, misfire=misfire)
    first = leader()
    wait_until(lambda: town.next("minutely") == "01-08 09:01:00")
    first.kill()
    town.set("2026-04-08 09:00:58")
    second = leader()
    led_at = time.monotonic()
    wait_until(lambda: "04-08 09:01:00" in town.slots("minutely"), what="the first new slot")
    assert time.monotonic() < led_at + 5
    assert town.state("minutely", "missed_count") == 10_000
    assert second.memory < 200e6


def test_b09_late_by_a_moment_is_not_late(
    town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    town.set("2026-01-08 09:00:58")
    for misfire in ("skip", "latest", "all"):
        town.job(misfire, **MINUTELY, misfire=misfire)
    first = leader()
    wait_until(lambda: town.next("skip") == "01-08 09:01:00")
    first.kill()
    town.set("2026-01-08 09:01:01")
    leader()
    wait_until(lambda: town.next("skip") == "01-08 09:02:00")
    for misfire in ("skip", "latest", "all"):
        assert town.slots(misfire) == ["01-08 09:01:00"]


def test_b09_the_clock_leaps_under_a_living_leader(
    town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    """As for a machine that was suspended: the newest slot runs, or each of them has its one row."""
    town.set("2026-01-08 09:00:30")
    town.job("latest", **MINUTELY)
    town.job("all", **MINUTELY, misfire="all")
    leader()
    wait_until(lambda: town.next("all") == "01-08 09:01:00")
    town.set("2026-01-08 09:03:30")
    wait_until(lambda: town.next("latest") == town.next("all") == "01-08 09:04:00")
    assert town.slots("latest") == ["01-08 09:03:00"]
    assert town.slots("all") == ["01-08 09:01:00", "01-08 09:02:00", "01-08 09:03:00"]
    town.set("2026-01-08 09:01:50")  # and back: no slot again
    time.sleep(1.5)
    assert len(town.slots("all")) == 3
    town.set("2026-01-08 09:04:00")
    wait_until(lambda: town.slots("all")[-1] == town.slots("latest")[-1] == "01-08 09:04:00")
    assert len(town.slots("all")) == 4


def test_b09_a_leader_is_replaced_within_a_slots_minute(
    town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    town.set("2026-01-08 09:00:58")
    town.job("minutely", **MINUTELY)
    for expected in (["01-08 09:01:00"], ["01-08 09:01:00"], ["01-08 09:01:00"]):
        process = leader()
        wait_until(lambda wanted=expected: town.slots("minutely") == wanted)
        process.kill()
