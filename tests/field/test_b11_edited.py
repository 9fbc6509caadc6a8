"""An edit was ignored until a restart, or fired for the past: a daily job moved to an earlier hour sent its thousand
mails again at once. Editing only the arguments restarted an interval from zero. A job moved from 23:00 to 05:00 at noon
still ran at 23:00.

An edit is in force within two polls, counts from the moment it was made, and fires nothing for the past.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.fault.clock import needs_a_compiler

from .conftest import Town

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), needs_a_compiler]


def test_b11_an_edit_counts_from_when_it_was_made(
    town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    def edited(name: str, at: str, expected: str, **columns: Any) -> None:
        town.set(f"2026-01-{at}")
        town.edit(name, **columns)
        wait_until(lambda: town.next(name) == expected, seconds=2, what=f"{name} is next at {expected}")
        assert town.slots(name, f"created_at >= '2026-01-{at}Z'") == []

    town.set("2026-01-08 00:59:58")
    town.job("earlier", cron="0 1 * * *")
    town.job("from 23 to 5", cron="0 23 * * *")
    town.job("to New York", cron="0 9 * * *")
    town.job("to Tokyo", cron="0 9 * * *")
    town.job("friday", cron="30 11 * * 5")
    leader()
    wait_until(lambda: town.slots("earlier") == ["01-08 01:00:00"])
    wait_until(lambda: town.next("friday") == "01-09 11:30:00")
    town.set("2026-01-08 08:59:58")
    wait_until(lambda: town.slots("to Tokyo") == ["01-08 09:00:00"])
    edited("to New York", "08 10:00:00", "01-08 14:00:00", timezone="America/New_York")
    edited("to Tokyo", "08 10:00:00", "01-09 00:00:00", timezone="Asia/Tokyo")
    edited("earlier", "08 12:00:00", "01-09 05:00:00", cron="0 5 * * *")
    edited("from 23 to 5", "08 12:00:00", "01-09 05:00:00", cron="0 5 * * *")
    town.job("from two o'clock on", cron="0 15 * * *", starts_at="2026-01-08 14:00Z")
    edited("friday", "08 23:49:00", "01-09 11:00:00", cron="0 11 * * 5")
    assert town.slots("from 23 to 5") == []
    town.set("2026-01-09 04:59:59")
    wait_until(lambda: town.slots("from 23 to 5") == ["01-09 05:00:00"])
    assert town.slots("earlier") == ["01-08 01:00:00", "01-09 05:00:00"]


def test_b11_a_start_that_has_passed_fires_nothing(
    town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    town.set("2026-01-08 14:02:00")
    leader()
    town.job("from two o'clock on", cron="0 15 * * *", starts_at="2026-01-08 14:00Z")
    wait_until(lambda: town.next("from two o'clock on") == "01-08 15:00:00", seconds=2)
    assert town.slots("from two o'clock on") == []


def test_b11_other_arguments_leave_an_interval_where_it_is(
    town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    town.set("2026-01-08 09:00:00")
    town.job("hourly", every="1 hour", anchor="2026-01-08 09:00:00Z")
    leader()
    wait_until(lambda: town.next("hourly") == "01-08 10:00:00")
    town.set("2026-01-08 09:59:59")
    wait_until(lambda: town.slots("hourly") == ["01-08 10:00:00"])
    town.set("2026-01-08 10:45:00")
    town.edit("hourly", args="[2]")
    wait_until(lambda: town.value("SELECT count(*) FROM cronoq_job_change") == 0)
    assert town.next("hourly") == "01-08 11:00:00"
    town.set("2026-01-08 10:59:59")
    wait_until(lambda: len(town.slots("hourly")) == 2)
    runs = "SELECT job_revision, args::text FROM cronoq_run WHERE job_name = 'hourly' ORDER BY scheduled_for"
    assert town.query(runs) == [(1, "[1]"), (2, "[2]")]
