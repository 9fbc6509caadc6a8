"""Switched on again, a job fired at once for what had passed while it was off; elsewhere fifty times together.

And the list's bulk "disable" behaved unlike the checkbox of the form. Here every road is an UPDATE that a trigger sees.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.fault.clock import needs_a_compiler

from .conftest import Town

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), needs_a_compiler]

# How each road writes: the form one column of a row, the bulk action many rows, a script all columns as it read them.
ROADS = {
    "form": "UPDATE cronoq_job SET enabled = {} WHERE name = 'form'",
    "bulk": "UPDATE cronoq_job SET enabled = {} WHERE name IN ('bulk', 'nothing else')",
    "save": "UPDATE cronoq_job SET enabled = {}, cron = cron, revision = 1, schedule_revision = 1 WHERE name = 'save'",
}


@pytest.mark.parametrize("back_on", ["2026-01-08 12:30:00", "2026-04-08 12:30:00"])
def test_b10_what_passed_while_a_job_was_off_is_not_made_up_for(
    back_on: str, town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    town.set("2026-01-08 09:50:00")
    for road in ROADS:
        town.job(road, cron="0 * * * *", misfire="all")
    leader()
    wait_until(lambda: {town.next(road) for road in ROADS} == {"01-08 10:00:00"})
    for update in ROADS.values():
        town.query(update.format("false"))
    wait_until(lambda: {town.next(road) for road in ROADS} == {None})
    assert {town.state(road, "explanation") for road in ROADS} == {"Paused."}
    town.set(back_on)
    for update in ROADS.values():
        town.query(update.format("true"))
    then = f"{back_on[5:10]} 13:00:00"
    wait_until(lambda: {town.next(road) for road in ROADS} == {then}, seconds=2, what="in force within two polls")
    assert [town.slots(road, "true") for road in ROADS] == [[], [], []]
    town.set(f"{back_on[:10]} 12:59:59")
    wait_until(lambda: [town.slots(road, "true") for road in ROADS] == [[then]] * 3)


def test_b10_switched_off_in_the_last_moment_it_fires_once_or_not_at_all(
    town: Town, leader: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    town.set("2026-01-08 09:59:57")
    names = [f"job {number}" for number in range(20)]
    for name in names:
        town.job(name, cron="0 * * * *")
    leader()
    wait_until(lambda: {town.next(name) for name in names} <= {"01-08 10:00:00", "01-08 11:00:00"})
    for name in names:  # all around the hour
        town.edit(name, enabled=False)
        time.sleep(0.15)
    wait_until(lambda: {town.next(name) for name in names} == {None})
    assert {tuple(town.slots(name)) for name in names} <= {(), ("01-08 10:00:00",)}
