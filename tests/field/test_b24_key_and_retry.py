"""A queue let a key be queued a second time while its first run was at work; then the first one failed.

Only what waited was covered by the unique index. Putting the failed run back beside its double violated it: the error
ended the worker, the run stayed "in progress" until somebody mended the table by hand, and the job that was to reset
stalled runs met the same pair and gave up on all the others as well. Here a key is held from the enqueue to the end,
through attempts, lost workers and retries: there is nothing to collide with, and the end, whichever it is, frees it.
"""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from cronoq_django import Backoff, Duplicate, cancel, current_run, get_run, retry, task
from cronoq_django.models import Attempt, Run, Unsettled, Worker
from cronoq_django.models.choices import OPEN, Outcome, Reason, Status
from cronoq_django.store.runs import (
    ClaimedRun,
    Completion,
    claim_runs,
    complete_runs,
    expire,
    quarantine,
    rescue,
    settle,
    stage,
)
from tests import tasks
from tests.fault.conftest import Fleet

pytestmark = pytest.mark.django_db(transaction=True)
in_one_transaction = pytest.mark.django_db  # the test's, where nobody else needs to see anything

KEY = "invoice 7"
OTHERS = 20
LEASE = timedelta(minutes=1)
DAY = timedelta(days=1)
IMPORTS = {"CRONOQ_IMPORTS": __name__, "CRONOQ_LEASE": "3"}  # for processes: the tasks below


@task(max_attempts=3, backoff=Backoff(first=0))
def hold_at_first(path: str) -> int:
    """The first attempt never ends, the second does at once."""
    run = current_run()
    assert run is not None
    tasks.note(path, f"{os.getpid()} {run.attempt}")
    if run.attempt == 1:
        time.sleep(600)
    return run.attempt


@task(max_attempts=2, backoff=Backoff(first=0.3, jitter=False))
def fail_at_first() -> int:
    run = current_run()
    assert run is not None
    if run.attempt == 1:
        raise ConnectionError("not yet")
    return run.attempt


keyed = tasks.add.using(key=KEY)


def claim(number: int = 100) -> list[ClaimedRun]:
    with connection.cursor() as cursor:
        return claim_runs(cursor, worker=uuid4(), pool="default", limit=number, lease=LEASE)


def complete(run: ClaimedRun, status: Status, reason: Reason | str = "", **more: Any) -> None:
    outcome = Outcome.SUCCEEDED if status == Status.SUCCEEDED else Outcome.FAILED
    done = Completion(
        id=run.id, claim=run.claim, outcome=outcome, status=status, reason=reason, took=timedelta(seconds=1), **more
    )
    with transaction.atomic(), connection.cursor() as cursor:
        assert complete_runs(cursor, [done]).accepted


def open_holders(key: str = KEY) -> list[str]:
    return [str(pk) for pk in Run.objects.filter(key=key, status__in=OPEN).values_list("pk", flat=True)]


def running(count: int) -> Callable[[], bool]:
    return lambda: Run.objects.filter(status=Status.RUNNING, started_at__isnull=False).count() == count


# While it is open


@in_one_transaction
@pytest.mark.parametrize("status", OPEN)
def test_b24_a_key_is_held_in_every_open_state(status: Status) -> None:
    options: dict[str, Any] = {}
    if status == Status.BLOCKED:
        options = {"after": tasks.add.using(run_after=DAY).enqueue(0)}
    elif status == Status.SCHEDULED:
        options = {"run_after": timedelta(hours=1)}
    first = keyed.using(**options).enqueue(1)
    if status == Status.RUNNING:
        claim()
    assert Run.objects.get(pk=first.id).status == status
    again = keyed.enqueue(2)
    assert (again.id, again.created, again.args) == (first.id, False, [1])
    with pytest.raises(Duplicate, match=first.id):
        keyed.using(on_duplicate="raise").enqueue(2)
    assert open_holders() == [first.id]


@in_one_transaction
def test_b24_the_database_itself_refuses_a_double_of_what_runs() -> None:
    """By whatever way a row comes: the double that made the trouble can't be written."""
    keyed.enqueue(1)
    claim()
    held = Run.objects.get()
    double = Run(
        trigger="enqueue",
        status="queued",
        script="tests.tasks.add",
        args=[1],
        key=KEY,
        key_hash=held.key_hash,
        key_held=True,
    )
    with pytest.raises(IntegrityError, match="cronoq_run_key"), transaction.atomic():
        double.save(force_insert=True)
    assert open_holders() == [str(held.pk)]


@in_one_transaction
def test_b24_a_failed_attempt_keeps_the_key_until_the_last() -> None:
    first = keyed.using(max_attempts=2).enqueue(1)
    complete(claim()[0], Status.QUEUED, error="no", delay=timedelta(hours=1))
    assert Run.objects.get().status == Status.SCHEDULED
    assert keyed.enqueue(2).id == first.id
    assert retry(first) == {}  # it is open
    with connection.cursor() as cursor:
        assert stage(cursor, limit=10, now=timezone.now() + DAY) == 1
    assert keyed.enqueue(2).id == first.id
    complete(claim()[0], Status.FAILED, Reason.ERROR)
    assert keyed.enqueue(2).created


# In real processes


@pytest.mark.fault
def test_b24_a_worker_that_retries_is_asked_for_the_key_all_the_time(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    fleet.leader(**IMPORTS)
    worker = fleet.worker(**IMPORTS)
    first = fail_at_first.using(key=KEY).enqueue()
    answers = []

    def until_it_is_free() -> bool:
        answers.append(fail_at_first.using(key=KEY, run_after=DAY).enqueue())
        return answers[-1].created

    wait_until(until_it_is_free)
    run = Run.objects.get(pk=first.id)
    assert (run.status, run.attempts, run.result) == (Status.SUCCEEDED, 2, 2)
    assert {answer.id for answer in answers[:-1]} == {first.id}
    assert open_holders() == [answers[-1].id]
    assert Run.objects.filter(script=fail_at_first.script_name).count() == 2
    assert "Error" not in worker.output.replace("ConnectionError", "")


@pytest.mark.fault
def test_b24_a_killed_workers_run_keeps_its_key_and_the_sweep_takes_back_all(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    worker = fleet.worker("--pool", f"default={OTHERS + 1}", **IMPORTS)
    first = hold_at_first.using(key=KEY).enqueue(str(tmp_path / "keyed"))
    others = [hold_at_first.using(key=f"other {n}").enqueue(str(tmp_path / "other")) for n in range(OTHERS)]
    wait_until(running(OTHERS + 1))
    assert not hold_at_first.using(key=KEY).enqueue("running").created
    worker.kill()
    second = hold_at_first.using(key=KEY).enqueue("lost")
    assert (second.id, second.created) == (first.id, False)
    wait_until(lambda: not Run.objects.filter(lease_expires_at__gt=timezone.now()).exists(), what="leases run out")
    assert hold_at_first.using(key=KEY).enqueue("expired").id == first.id

    leader = fleet.leader(**IMPORTS)
    wait_until(lambda: not Run.objects.filter(status=Status.RUNNING).exists(), what="all are taken back")
    lost = Attempt.objects.filter(outcome=Outcome.LOST)
    assert {str(pk) for pk in lost.values_list("run_id", flat=True)} == {one.id for one in [first, *others]}
    assert lost.values("ended_at").distinct().count() == 1  # the time of the one transaction that did it
    assert "Error" not in leader.output
    assert hold_at_first.using(key=KEY).enqueue("queued").id == first.id
    assert open_holders() == [first.id]

    fleet.worker("--pool", f"default={OTHERS + 1}", **IMPORTS)
    wait_until(lambda: Run.objects.filter(status=Status.SUCCEEDED, attempts=2).count() == OTHERS + 1)
    assert Run.objects.filter(script=hold_at_first.script_name).count() == OTHERS + 1
    assert hold_at_first.using(key=KEY, run_after=DAY).enqueue("free").created


@pytest.mark.fault
def test_b24_a_supervisor_takes_a_keyed_run_back_from_its_dead_child(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """No leader, and a long lease: the supervisor alone does it, and a new child ends the run."""
    fleet.worker("--pool", f"default={OTHERS + 1}", **{**IMPORTS, "CRONOQ_LEASE": "300"})
    path = tmp_path / "lines"
    first = hold_at_first.using(key=KEY).enqueue(str(path))
    for _ in range(OTHERS):
        hold_at_first.enqueue(str(path))
    wait_until(running(OTHERS + 1))
    os.kill(int(path.read_text().split()[0]), signal.SIGKILL)
    seen = set()

    def all_have_ended() -> bool:
        seen.add(hold_at_first.using(key=KEY, run_after=DAY).enqueue(str(path)).id)
        return Run.objects.filter(status=Status.SUCCEEDED, attempts=2).count() == OTHERS + 1

    wait_until(all_have_ended)
    assert first.id in seen
    assert len(seen) <= 2  # and the one that got the key at its end
    assert Attempt.objects.filter(outcome=Outcome.LOST).count() == OTHERS + 1
    assert Worker.objects.filter(status="lost").count() == 1


# In one sweep


def test_b24_a_sweep_takes_back_what_holds_a_key_and_all_others(leading: Any) -> None:
    """Some go back to the queue, some had their last attempt, one is to be cancelled: a key held or freed by each."""
    runs = [tasks.add.using(key=f"key {n}", max_attempts=1 + n % 2).enqueue(n) for n in range(OTHERS)]
    first = keyed.enqueue(1)
    last = tasks.add.using(key="unwanted").enqueue(1)
    claim()
    Run.objects.update(started_at=timezone.now(), lease_expires_at=timezone.now() - DAY)
    cancel(last)
    with leading.transaction() as tx:
        taken_back = rescue(tx, limit=1000)
    assert taken_back == {
        UUID(first.id): Status.QUEUED,
        UUID(last.id): Status.CANCELLED,
        **{UUID(run.id): Status.QUEUED if n % 2 else Status.FAILED for n, run in enumerate(runs)},
    }
    again = [tasks.add.using(key=f"key {n}").enqueue(n) for n in range(OTHERS)]
    assert [run.created for run in again] == [n % 2 == 0 for n in range(OTHERS)]
    assert not keyed.enqueue(1).created
    assert tasks.add.using(key="unwanted").enqueue(1).created


# After its end


def _succeed(run: Any, leading: Any) -> None:
    complete(claim()[0], Status.SUCCEEDED)


def _fail(run: Any, leading: Any) -> None:
    complete(claim()[0], Status.FAILED, Reason.ERROR)


def _cancel_waiting(run: Any, leading: Any) -> None:
    assert cancel(run).cancelled == 1


def _cancel_running(run: Any, leading: Any) -> None:
    (claimed,) = claim()
    assert cancel(run).requested == 1
    complete(claimed, Status.QUEUED, error="cancelled")


def _lose(run: Any, leading: Any) -> None:
    Run.objects.update(max_attempts=1)
    claim()
    Run.objects.update(lease_expires_at=timezone.now() - DAY)
    with leading.transaction() as tx:
        assert list(rescue(tx, limit=1000).values()) == [Status.FAILED]


def _expire(run: Any, leading: Any) -> None:
    Run.objects.update(expires_at=timezone.now() - DAY)
    with leading.transaction() as tx:
        assert len(expire(tx, limit=1000)) == 1


def _quarantine(run: Any, leading: Any) -> None:
    Run.objects.update(args={"not": "a list"})
    with leading.transaction() as tx:
        assert len(quarantine(tx, limit=1000)) == 1


def _skip(run: Any, leading: Any) -> None:
    Run.objects.exclude(pk=run.id).delete()  # what it waits for
    while Unsettled.objects.exists():
        with leading.transaction() as tx:
            settle(tx, limit=1000)


def _delete(run: Any, leading: Any) -> None:
    Run.objects.filter(pk=run.id).delete()


def _delete_running(run: Any, leading: Any) -> None:
    claim()
    Run.objects.filter(pk=run.id).delete()


ENDS = {
    _succeed: ("succeeded", ""),
    _fail: ("failed", "error"),
    _cancel_waiting: ("cancelled", "requested"),
    _cancel_running: ("cancelled", "requested"),
    _lose: ("failed", "lost"),
    _expire: ("failed", "expired"),
    _quarantine: ("failed", "quarantined"),
    _skip: ("skipped", "prerequisite"),
    _delete: None,
    _delete_running: None,
}


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept"])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__.strip("_"))
def test_b24_every_end_frees_the_key_at_once_or_keeps_it_as_long_as_was_asked(
    leading: Any, end: Callable[[Any, Any], None], kept: bool
) -> None:
    options: dict[str, Any] = {"key_for": DAY} if kept else {}
    if end is _skip:
        options["after"] = tasks.add.using(run_after=DAY).enqueue(0)
    first = keyed.using(**options).enqueue(1)
    end(first, leading)
    ended = Run.objects.filter(pk=first.id).first()
    assert (ended and (ended.status, ended.reason)) == ENDS[end]
    again = keyed.enqueue(2)
    if kept and ended is not None:
        assert (again.id, again.created) == (first.id, False)
        assert ended.key_until == ended.finished_at + DAY
    else:
        assert again.created
        assert open_holders() == [again.id]
        assert get_run(key=KEY).id == UUID(again.id)


@in_one_transaction
def test_b24_a_retry_by_hand_names_who_has_the_key_now_and_retries_the_others() -> None:
    """One of the failed ones has lost its key to another run: that is one answer, not an error for all."""
    failed = [tasks.add.using(key=f"key {n}").enqueue(n) for n in range(OTHERS + 1)]
    for claimed in claim():
        complete(claimed, Status.FAILED, Reason.ERROR)
    taken = tasks.add.using(key="key 7").enqueue("another")
    retried = retry(*failed)
    assert retried[UUID(failed[7].id)] == UUID(taken.id)
    new = Run.objects.filter(retry_of__isnull=False)
    assert {str(run.retry_of_id): str(run.pk) for run in new} == {
        one.id: str(retried[UUID(one.id)]) for one in failed if one is not failed[7]
    }
    assert all(len(open_holders(f"key {n}")) == 1 for n in range(OTHERS + 1))
    assert retry(*failed) == retried  # and again: who has the keys now
