"""The lock, the epoch or the leader row is lost under a living leader: it stops writing, says so, and stands by."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from cronoq_django.models import Leader, LeaderTerm, Run, Stage
from cronoq_django.store.session import Session, connect
from cronoq_django.store.statements import statement

from .conftest import Fleet, Process
from .slots import (
    SECOND,
    assert_one_run_a_slot,
    clock,
    epoch,
    every_second,
    fired_since,
    late_writes,
    leader_of,
    stands_by,
    written_since,
)

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def console(fleet: Fleet) -> Iterator[Session]:
    """A session of somebody else's."""
    session = connect("default", name="console")
    yield session
    session.close()


def test_a_leader_whose_session_is_cut_leads_again_in_a_new_term(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    jobs = every_second(1)
    leader = fleet.leader()
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    cut_at = cut_the_leader(wait_until)
    wait_until(lambda: epoch() == 2)
    wait_until(lambda: fired_since(cut_at) >= 3)
    assert leader.is_alive
    assert "Stepping down" in leader.output
    assert written_since(cut_at, term=1) == []
    leader.stop()
    assert_one_run_a_slot(jobs)


def test_a_cut_session_of_the_leader_costs_a_term_and_no_slot(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    jobs = every_second()
    first, _ = leader_and_standby(fleet, wait_until)
    with late_writes() as late:
        cut_at = cut_the_leader(wait_until)
        wait_until(lambda: epoch() == 2, seconds=3)
        wait_until(lambda: Run.objects.filter(epoch=2).count() >= 6)
        wait_until(lambda: stands_by(first, cut_at) or leader_of(fleet) is first)
        assert written_since(cut_at, term=1) == []
        assert late() == []
    assert "Stepping down, the database is unavailable" in first.output
    assert LeaderTerm.objects.get(epoch=1).ended
    assert_one_run_a_slot(jobs)


def test_nobody_leads_while_another_session_has_the_lock(
    fleet: Fleet, wait_until: Callable[..., Any], console: Session
) -> None:
    """The lock goes to somebody else in the same instant in which the leader loses it: he stood in line for it."""
    jobs = every_second()
    processes = leader_and_standby(fleet, wait_until)
    with late_writes() as late:
        with ThreadPoolExecutor(1) as thread:
            line = statement("advisory_lock").replace("pg_try_advisory_lock", "pg_advisory_lock")
            grabbed = thread.submit(console.execute, line)
            wait_until(partial(waits_for_the_lock, console), what="somebody stands in line")
            lost_at = cut_the_leader(wait_until)
            grabbed.result(10)
        # Both are there and try for the lock: two heartbeats of a standby lie three tries apart.
        for _ in range(2):
            looked_at = clock()
            for process in processes:
                wait_until(partial(stands_by, process, looked_at))
        assert epoch() == 1
        assert written_since(lost_at, term=1) == []
        assert fired_since(lost_at) == 0
        assert "Stepping down" in processes[0].output
        released_at = clock()
        console.close()
        wait_until(lambda: epoch() == 2, what="somebody leads")
        assert (Leader.objects.get().acquired_at - released_at).total_seconds() <= 2
        wait_until(lambda: Run.objects.filter(epoch=2).count() >= 6)
        assert late() == []
    assert_one_run_a_slot(jobs)


@pytest.mark.parametrize(
    ("change", "next_epoch"),
    [
        ("epoch = epoch + 1, term = gen_random_uuid()", 3),
        ("epoch = epoch - 1, term = gen_random_uuid()", 1),
        ("term = gen_random_uuid()", 2),
    ],
    ids=["raised", "rewound", "same"],
)
def test_another_term_in_the_leader_row_fences_the_leader(
    fleet: Fleet, wait_until: Callable[..., Any], change: str, next_epoch: int
) -> None:
    """A replica that lagged was promoted: the row has an earlier epoch, or the same one of another leader.

    Rewound, the next leader gets the number of the fenced one, which only the term tells apart.
    """
    jobs = every_second()
    leader, _ = leader_and_standby(fleet, wait_until)
    old_term = Leader.objects.get().term
    with late_writes() as late:
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE cronoq_leader SET {change} RETURNING term")
            their_term = cursor.fetchone()[0]
        changed_at = clock()
        wait_until(lambda: Leader.objects.get().term != their_term, what="the next leader takes over")
        wait_until(lambda: LeaderTerm.objects.count() == 2)
        term = LeaderTerm.objects.get(term=Leader.objects.get().term)
        wait_until(lambda: fired_since(term.from_at) >= 6)
        assert "Stepping down: epoch 1 is over" in leader.output
        assert not Run.objects.filter(trigger="slot", created_at__range=(changed_at, term.from_at)).exists()
        if next_epoch != 1:
            assert written_since(changed_at, term=1) == []
        assert late() == []
    assert epoch() == term.epoch == next_epoch
    assert LeaderTerm.objects.get(term=old_term).until_at >= changed_at
    assert_one_run_a_slot(jobs)


def test_somebody_who_holds_the_leader_row_is_named_and_leading_resumes_when_he_lets_go(
    fleet: Fleet, wait_until: Callable[..., Any], console: Session
) -> None:
    """Someone had locked the leader row in a console. Nobody could lead, and nothing said why."""
    jobs = every_second()
    processes = leader_and_standby(fleet, wait_until)
    console.execute("BEGIN")
    console.execute("SELECT FROM cronoq_leader FOR UPDATE")
    held_at = clock()
    name = rf"held by .*console.*process {console.info.backend_pid}\b"
    wait_until(lambda: any(re.search(name, process.output) for process in processes), what="the holder is named")
    assert epoch() == 1
    assert fired_since(held_at) == 0
    released_at = clock()
    console.execute("COMMIT")
    wait_until(lambda: epoch() == 2, what="leading resumes")
    assert (Leader.objects.get().acquired_at - released_at).total_seconds() <= 3
    wait_until(lambda: fired_since(released_at) >= 6)
    assert_one_run_a_slot(jobs)


def test_a_late_write_would_be_seen(transactional_db: None) -> None:
    """What these tests rely on: an epoch beside the leader row's is kept, the right one isn't."""
    now = clock()
    Leader.objects.create(
        epoch=2, term=uuid4(), coordinator=uuid4(), host="h", backend_pid=1, backend_start=now, acquired_at=now,
        renewed_at=now, ttl=SECOND,
    )  # fmt: skip
    with late_writes() as late:
        for name, term in (("fire", 2), ("plan", 1)):
            Stage.objects.create(name=name, epoch=term, last_run_at=now, duration=SECOND, rows=0)
        assert late() == [("cronoq_stage", 1, 2)]


def leader_and_standby(fleet: Fleet, wait_until: Callable[..., Any]) -> tuple[Process, Process]:
    """Two processes: one that leads and has fired, and one that stands by."""
    first = fleet.leader()
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    second, begun_at = fleet.leader(), clock()
    wait_until(partial(stands_by, second, begun_at))
    assert epoch() == 1
    return first, second


def cut_the_leader(wait_until: Callable[..., Any]) -> datetime:
    """End the leader's session; the instant at which it had ended."""
    pid = Leader.objects.get().backend_pid
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])

    def is_gone() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid])
            return cursor.fetchone() is None

    wait_until(is_gone)
    return clock()


def waits_for_the_lock(session: Session) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND NOT granted", [session.info.backend_pid]
        )
        return cursor.fetchone() is not None
