"""A leader's process is frozen for longer than the TTL: another leads, and what wakes up writes nothing.

A paused process kept its session and its lock for ever, and nobody led; one that woke in the middle of a transaction
would have committed it beside its successor's.
"""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from django.db import connection

from cronoq_django.models import Leader, LeaderTerm, Run
from cronoq_django.store.session import connect

from .conftest import Fleet, Process
from .slots import (
    assert_one_run_a_slot,
    clock,
    epoch,
    every_second,
    figures,
    late_writes,
    leader_of,
    stands_by,
    written_since,
)

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

TIMES = 10
TTL = 3.0  # seconds, by tests.fault.settings
LATEST = TTL + 1.5
OUT = re.compile(r"Stepping down(: epoch \d+ is over|, the database is unavailable)")


@pytest.mark.parametrize("when", ["idle", "in a transaction", "in a transaction that stays stuck"])
def test_a_frozen_leader_is_replaced_and_writes_nothing_when_it_wakes(
    fleet: Fleet, wait_until: Callable[..., Any], record_property: Callable[[str, object], None], when: str
) -> None:
    """In a transaction: one of its stages waits for a lock on cronoq_run, which the test then lets go, or keeps until
    the leader is replaced (then the successor can't fire yet, but it leads)."""
    jobs = every_second()
    for _ in range(2):
        fleet.leader()
    took = []
    with late_writes() as late:
        for before in range(1, TIMES + 1):
            leader = wait_until(partial(ready, fleet, before), what="one leads and fires, one stands by")
            said = len(leader.output)
            with locked_runs(when != "idle") as let_go:
                frozen_at = freeze(leader, wait_until, is_idle if when == "idle" else is_stuck)
                if when != "in a transaction that stays stuck":
                    let_go()
                wait_until(lambda: epoch() != before, seconds=LATEST + 5, what="replaced")  # noqa: B023
            assert epoch() == before + 1
            took.append((Leader.objects.get().acquired_at - frozen_at).total_seconds())
            replaced_at = wait_until(lambda: begun(before + 1))  # noqa: B023
            wait_until(lambda: Run.objects.filter(epoch=before + 1).exists())  # noqa: B023
            woken_at = clock()
            leader.signal(signal.SIGCONT)
            wait_until(lambda: OUT.search(leader.output, said), what="it says that it leads no more")  # noqa: B023
            wait_until(partial(stands_by, leader, woken_at), what="and stands by")
            assert written_since(replaced_at, term=before) == []
            assert late() == []
        record_property(f"frozen {when}", figures(took))
        print(f"Replaced when frozen {when}: {figures(took)}")
    assert max(took) <= LATEST
    assert [term.epoch for term in LeaderTerm.objects.order_by("from_at")] == list(range(1, TIMES + 2))
    for process in fleet.processes:
        assert "Traceback" not in process.output
        assert process.stop() == 0
    assert_one_run_a_slot(jobs)


def ready(fleet: Fleet, term: int) -> Process | None:
    """The leader, once it has fired in that term and the other has said that it stands by."""
    leader = leader_of(fleet)
    if leader is None or not Run.objects.filter(epoch=term).exists():
        return None
    return leader if all(stands_by(other, begun(term)) for other in fleet.processes if other is not leader) else None


def begun(term: int) -> datetime | None:
    return LeaderTerm.objects.filter(epoch=term).values_list("from_at", flat=True).first()


def freeze(leader: Process, wait_until: Callable[..., Any], fact: Callable[[], bool]) -> datetime:
    """Stop it at a moment when that is so, and still is when it has stopped; when."""
    for _ in range(50):
        wait_until(fact, what=fact.__name__)
        frozen_at = clock()
        leader.signal(signal.SIGSTOP)
        if fact():
            return frozen_at
        leader.signal(signal.SIGCONT)
    return pytest.fail("the moment was never caught")


def is_idle() -> bool:
    return backend_of_leader() == ("idle", "Client")


def is_stuck() -> bool:
    """In an open transaction, waiting for a lock."""
    return backend_of_leader() == ("active", "Lock")


def backend_of_leader() -> tuple[str, str] | None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT state, wait_event_type FROM pg_stat_activity JOIN cronoq_leader ON pid = cronoq_leader.backend_pid"
        )
        return cursor.fetchone()


@contextmanager
def locked_runs(wanted: bool) -> Iterator[Callable[[], None]]:
    """Nobody can write runs until the end, or until what it gives is called."""
    if not wanted:
        yield lambda: None
        return
    console = connect("default", name="console")
    try:
        console.execute("BEGIN")
        console.execute("LOCK TABLE cronoq_run IN SHARE ROW EXCLUSIVE MODE")
        yield console.close
    finally:
        console.close()
