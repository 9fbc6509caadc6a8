"""Somebody holds the row of a running run for longer than its lease, in a console or in a long request.

Renewing must not wait for that, and so it could not renew. When the row was let go, the lease was over: the leader took
the run back from a worker that was alive and well, and it was executed twice. Who is heard of keeps what he has.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone

from cronoq_django.leader.fence import Fence
from cronoq_django.leader.stages.rescue import Rescue
from cronoq_django.models import Attempt, Run, Worker
from cronoq_django.models.choices import Status, WorkerStatus
from cronoq_django.store import runs
from cronoq_django.store.session import connect, transaction
from cronoq_django.store.workers import heartbeat_worker
from tests import tasks

from .conftest import Fleet
from .runs import finished
from .slots import clock

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

LEASE = timedelta(seconds=60)


class NotNowError(Exception):
    """The one in the console thinks better of it."""


@contextmanager
def asked_to_cancel(run: UUID, *, commits: bool) -> Iterator[None]:
    """A cancel of that run stays open meanwhile."""
    console = connect("default", name="console")
    try:
        with suppress(NotNowError), transaction(console) as cursor:
            assert runs.request_cancel(cursor, [run]) == [run]
            yield
            if not commits:
                raise NotNowError
    finally:
        console.close()


@pytest.mark.parametrize("commits", [False, True])
def test_a_worker_that_is_heard_of_keeps_what_it_could_not_renew(leading: Fence, commits: bool) -> None:
    """Until a lease after it was last heard of; and if it has said that it ends, not at all."""
    for status, silent, is_kept in [
        (WorkerStatus.ONLINE, timedelta(), True),
        (WorkerStatus.DRAINING, timedelta(), True),
        (WorkerStatus.DRAINING, LEASE - timedelta(seconds=30), True),
        (WorkerStatus.ONLINE, LEASE, False),
        (WorkerStatus.LOST, timedelta(), False),
        (WorkerStatus.STOPPED, timedelta(), False),
    ]:
        worker = Worker.objects.create(name="w", process_id=1, concurrency=1).pk
        run = tasks.add.enqueue(1)
        supervisor = connect("default", name="supervisor")
        with transaction(supervisor) as cursor:
            (claimed,) = runs.claim_runs(cursor, worker=worker, pool="default", limit=1, lease=timedelta(seconds=-1))
        with asked_to_cancel(claimed.id, commits=commits):
            with transaction(supervisor) as cursor:
                assert runs.renew_leases(cursor, worker=worker, lease=LEASE) == []  # at once
            with transaction(supervisor) as cursor:
                heartbeat_worker(cursor, worker=worker, status=status)
        Worker.objects.filter(pk=worker).update(last_heartbeat_at=timezone.now() - silent)
        with leading.transaction() as tx:
            became = Status.CANCELLED if commits else Status.QUEUED
            assert runs.rescue(tx, limit=9, lease=LEASE) == ({} if is_kept else {claimed.id: became})
        with transaction(supervisor) as cursor:
            renewed = [(claimed.id, claimed.claim, commits)] if is_kept else []
            assert runs.renew_leases(cursor, worker=worker, lease=LEASE) == renewed
        Run.objects.filter(pk=run.id).delete()
        supervisor.close()


@pytest.mark.parametrize("commits", [False, True])
def test_what_a_living_worker_executes_is_not_executed_twice(
    fleet: Fleet, leading: Fence, wait_until: Callable[..., Any], tmp_path: Path, commits: bool
) -> None:
    """The leader looks in the very moment in which the row is let go: the supervisor comes too late to renew."""
    worker = fleet.worker(CRONOQ_LEASE="2")
    result = tasks.report_and_wait.enqueue(str(tmp_path / "go"))
    # A look keeps the leader's session: idle for a TTL, it is ended.
    begun = Run.objects.filter(pk=result.id, started_at__isnull=False)
    wait_until(lambda: leading.look() and begun.exists())
    held = Run.objects.filter(pk=result.id)
    with asked_to_cancel(UUID(result.id), commits=commits):
        wait_until(lambda: leading.look() and held.filter(lease_expires_at__lt=clock()).exists(), what="it is over")
        worker.signal(signal.SIGSTOP)
    with leading.transaction() as tx:
        taken_back = Rescue().step(tx)
    worker.signal(signal.SIGCONT)
    assert taken_back == 0
    if not commits:
        (tmp_path / "go").touch()
    wait_until(finished(result))
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.attempts) == (Status.CANCELLED if commits else Status.SUCCEEDED, 1)
    assert not Attempt.objects.filter(run=result.id, outcome="lost").exists()
