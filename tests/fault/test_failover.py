"""A leader is killed, and a standby leads: how soon, and with no slot lost or doubled, twenty times in a row."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db.models import Min

from cronoq_django.models import Coordinator, Leader, LeaderTerm, Run

from .conftest import Fleet, Process
from .slots import assert_one_run_a_slot, clock, epoch, every_second, figures, leader_of, p95

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]

TIMES = 20
TTL = 10  # seconds: the default


def test_a_killed_leader_is_replaced_within_a_second(
    fleet: Fleet, wait_until: Callable[..., Any], record_property: Callable[[str, object], None]
) -> None:
    """At default settings. Three processes, so that a fresh one boots while others stand by.

    The time that counts is from the kill to the first row that the successor wrote; it fires right after, unless no
    slot is due: ten jobs have one every tenth of a second.
    """
    jobs = every_second(10)
    start = partial(fleet.leader, CRONOQ_LEADER_TTL=str(TTL))
    for _ in range(3):
        start()
    until_it_leads, until_it_says_so, until_it_fires = [], [], []
    for before in range(1, TIMES + 1):
        leader = wait_until(partial(ready, fleet, before), what="one leads, another stands by")
        killed_at = clock()
        leader.kill()
        wait_until(lambda: epoch() != before, seconds=TTL + 5, what="the standby takes over")  # noqa: B023
        assert epoch() == before + 1
        wait_until(lambda: Run.objects.filter(epoch=before + 1).exists())  # noqa: B023
        start()
        term = LeaderTerm.objects.get(epoch=before + 1)
        first_run = Run.objects.filter(epoch=before + 1).aggregate(at=Min("created_at"))["at"]
        until_it_leads.append((Leader.objects.get().acquired_at - killed_at).total_seconds())
        until_it_says_so.append((term.from_at - killed_at).total_seconds())
        until_it_fires.append((first_run - killed_at).total_seconds())
    for what, values in {
        "cronoq_leader": until_it_leads,
        "cronoq_leader_term": until_it_says_so,
        "first slot run": until_it_fires,
    }.items():
        record_property(f"failover: {what}", figures(values))
        print(f"From the kill to {what}: {figures(values)}")
    assert p95(until_it_leads) < 1
    assert p95(until_it_says_so) < 1
    assert [term.epoch for term in LeaderTerm.objects.order_by("from_at")] == list(range(1, TIMES + 2))
    assert all("replaced" in term.ended for term in LeaderTerm.objects.filter(epoch__lte=TIMES))
    assert_one_run_a_slot(jobs)


def ready(fleet: Fleet, term: int) -> Process | None:
    """The leader, once it has fired in that term and another process has lately said that it stands by."""
    leader = leader_of(fleet)
    if leader is None or epoch() != term or not Run.objects.filter(epoch=term).exists():
        return None
    others = [process.pid for process in fleet.processes if process.is_alive and process is not leader]
    waiting = Coordinator.objects.filter(
        process_id__in=others, status="standby", last_heartbeat_at__gt=clock() - timedelta(seconds=TTL * 0.6)
    )
    return leader if waiting.exists() else None
