"""Five leaders for two minutes, one of them killed or frozen every three seconds; then the rows are read."""

import os
import random
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db.models import F

from cronoq_django.models import Coordinator, Job, JobState, Leader, LeaderTerm, Run
from cronoq_django.store.jobs import upsert_job

from .conftest import Fleet, Process
from .slots import clock, epoch, late_writes, leader_of

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]

SECONDS = float(os.environ.get("CRONOQ_CHAOS_SECONDS", "120"))
EVERY = 3.0  # seconds between two blows
LEADERS = 5
SCHEDULES: list[dict[str, Any]] = [
    *({"kind": "every", "every": timedelta(seconds=seconds)} for seconds in (1, 1, 1, 1, 1, 2, 2, 3, 5, 7, 11, 30)),
    {"kind": "cron", "cron": "* * * * * *"},
    {"kind": "cron", "cron": "*/2 * * * * *", "timezone": "Europe/Warsaw"},
    {"kind": "cron", "cron": "*/5 * * * * *"},
    {"kind": "cron", "cron": "10,20,45 * * * * *"},
    *({"kind": "cron", "cron": "* * * * *", "timezone": zone} for zone in ("UTC", "Asia/Tokyo", "America/New_York")),
    {"kind": "cron", "cron": "*/1 * * * *"},
]


class Chaos:
    """Five leader processes, and what befalls them."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._random = random.Random(seed)
        self._thaws: dict[Process, float] = {}
        self.living = [fleet.leader() for _ in range(LEADERS)]
        self.killed: list[Process] = []
        self.frozen = 0

    def strike(self) -> None:
        """Kill or freeze one: every other time the leader, if it isn't frozen already."""
        victim = self._random.choice(self.living)
        if self._random.random() < 0.5 and (leader := leader_of(self._fleet)) in self.living:
            victim = leader
        if victim not in self._thaws and self._random.random() < 0.5:
            victim.signal(signal.SIGSTOP)
            self._thaws[victim] = time.monotonic() + self._random.uniform(1, 8)
            self.frozen += 1
        else:
            victim.kill()
            self._thaws.pop(victim, None)
            self.killed.append(victim)
            self.living.remove(victim)
            self.living.append(self._fleet.leader())

    def thaw(self, *, every: bool = False) -> None:
        """Wake those whose time has come."""
        for process, until in list(self._thaws.items()):
            if every or time.monotonic() >= until:
                process.signal(signal.SIGCONT)
                del self._thaws[process]


def test_two_minutes_of_chaos_leave_no_slot_out_and_none_twice(
    fleet: Fleet, wait_until: Callable[..., Any], record_property: Callable[[str, object], None]
) -> None:
    seed = int(os.environ.get("CRONOQ_CHAOS_SEED", random.randrange(2**32)))
    print(f"CRONOQ_CHAOS_SEED={seed}")
    record_property("chaos: seed", seed)
    jobs = [
        upsert_job(
            f"chaos-{n}", script="tests.tasks.add", args=[n], overlap="allow", misfire="all", misfire_limit=1000, **when
        )
        for n, when in enumerate(SCHEDULES)
    ]
    chaos = Chaos(fleet, seed)
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    with late_writes() as late:
        begun = time.monotonic()
        blow = begun
        while time.monotonic() < begun + SECONDS:
            if time.monotonic() >= blow:
                chaos.strike()
                blow += EVERY
            chaos.thaw()
            assert [process for process in chaos.living if not process.is_alive] == []
            time.sleep(0.05)  # the clock is what is awaited
        chaos.thaw(every=True)
        ended_at = clock()
        wait_until(lambda: settled(chaos, ended_at), what="one leads, four stand by, nothing is due")
        assert late() == []
    said = f"{len(chaos.killed)} killed, {chaos.frozen} frozen, {epoch()} epochs, {Run.objects.count()} runs"
    print(said)
    record_property("chaos", said)

    assert [process for process in chaos.living if not process.is_alive] == []
    for job in jobs:
        assert (job.name, slots_of(job, until=ended_at)) == (job.name, expected(job, until=ended_at))
    assert not Run.objects.filter(job__in=jobs, status="skipped").exists()
    terms = list(LeaderTerm.objects.order_by("from_at"))
    assert all(earlier.epoch < later.epoch for earlier, later in pairwise(terms))
    assert [term.until_at is None for term in terms] == [False] * (len(terms) - 1) + [True]
    assert [
        (earlier.epoch, earlier.until_at, later.from_at)
        for earlier, later in pairwise(terms)
        if not earlier.from_at <= earlier.until_at <= later.from_at
    ] == []


def settled(chaos: Chaos, since: datetime) -> bool:
    """Whether, heard of after that moment, one of the living leads, all others stand by, and every due slot fired."""
    heard = Coordinator.objects.filter(
        process_id__in=[process.pid for process in chaos.living], last_heartbeat_at__gt=since
    )
    return (
        list(heard.filter(status="leading").values_list("pk", flat=True)) == [Leader.objects.get().coordinator]
        and heard.filter(status="standby").count() == LEADERS - 1
        and not JobState.objects.filter(next_run_at__lte=since).exists()
        and not JobState.objects.exclude(planned_revision=F("job__schedule_revision")).exists()
        and JobState.objects.filter(job__name__startswith="chaos-").count() == len(SCHEDULES)
    )


def slots_of(job: Job, until: datetime) -> list[datetime]:
    """Those that have a run, repeated if they have several."""
    runs = Run.objects.filter(job=job, trigger="slot", scheduled_for__lte=until)
    return list(runs.order_by("scheduled_for").values_list("scheduled_for", flat=True))


def expected(job: Job, until: datetime) -> list[datetime]:
    """Every slot since the job's creation."""
    slots = []
    slot = job.schedule.next(job.schedule_changed_at)
    while slot is not None and slot <= until:
        slots.append(slot)
        slot = job.schedule.next(slot)
    return slots
