"""Cancelling was refused for work that runs, so a job that hung and was retried could not be stopped at all.

Or "cancelled" was overwritten by "completed"; or the cancelled run failed, and was retried; or its key blocked the next
enqueue for seconds. Here what waits is cancelled at once, and what runs is asked to end: it is interrupted where it can
be, and no further attempt follows, whatever becomes of it or of its worker. Only what has succeeded stays so: a task
that returned before it noticed has done its work. What waits for a run follows the one state in which it ended.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from cronoq_django import Backoff, cancel
from cronoq_django.leader.fence import Fence
from cronoq_django.leader.stages.rescue import Rescue
from cronoq_django.models import Attempt, Run, Unsettled
from cronoq_django.models.choices import TERMINAL, Condition, Outcome, Reason, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import runs
from cronoq_django.store.controls import Cancelled
from cronoq_django.store.session import connect
from cronoq_django.store.session import transaction as on_session
from tests import tasks
from tests.fault.conftest import Fleet

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

REPEATS = 200
LONG = Backoff(first=3600)

WITNESS = """
CREATE UNLOGGED TABLE became (number int GENERATED ALWAYS AS IDENTITY, run uuid, before text, after text);
CREATE FUNCTION note_became() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO became (run, before, after) VALUES (NEW.id, OLD.status, NEW.status);
    RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER UPDATE ON cronoq_run FOR EACH ROW WHEN (OLD.status <> NEW.status)
EXECUTE FUNCTION note_became()
"""


@pytest.fixture
def became(transactional_db: None) -> Iterator[Callable[[Any], list[str]]]:
    """Each state that a run has come to since it was made, as a trigger saw it."""

    def states(run: Any) -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT after FROM became WHERE run = %s ORDER BY number", [run.id])
            return [after for (after,) in cursor.fetchall()]

    with connection.cursor() as cursor:
        cursor.execute(WITNESS)
    yield states
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER witness ON cronoq_run; DROP FUNCTION note_became; DROP TABLE became")


def row(run: Any) -> Run:
    return Run.objects.get(pk=run.id)


def claim(*, limit: int = 1, lease: float = 60, worker: UUID | None = None) -> list[runs.ClaimedRun]:
    with transaction.atomic(), connection.cursor() as cursor:
        return runs.claim_runs(
            cursor, worker=worker or uuid7(), pool="default", limit=limit, lease=timedelta(seconds=lease)
        )


SUCCESS = (Outcome.SUCCEEDED, Status.SUCCEEDED, "")
FAILURE = (Outcome.FAILED, Status.FAILED, Reason.ERROR)
RETRY = (Outcome.FAILED, Status.QUEUED, "")
OUTCOMES = {
    "success": SUCCESS,
    "failure": FAILURE,
    "retry": RETRY,
    "snooze": (Outcome.SNOOZED, Status.QUEUED, ""),
    "release": (Outcome.RELEASED, Status.QUEUED, ""),
    "timeout": (Outcome.TIMED_OUT, Status.FAILED, Reason.TIMEOUT),
}


def outcome_of(claimed: runs.ClaimedRun, how: tuple[Outcome, Status, str], **fields: Any) -> runs.Completion:
    outcome, status, reason = how
    took = timedelta(seconds=1)
    return runs.Completion(
        id=claimed.id, claim=claimed.claim, outcome=outcome, status=status, reason=reason, took=took, **fields
    )


def complete(claimed: runs.ClaimedRun, how: tuple[Outcome, Status, str], **fields: Any) -> runs.Completed:
    with transaction.atomic(), connection.cursor() as cursor:
        return runs.complete_runs(cursor, [outcome_of(claimed, how, **fields)])


def children(parent: Any) -> dict[str, Any]:
    """One of each condition, in a pool of their own."""
    return {on: tasks.add.using(after=parent, on=on, queue_name="later").enqueue(2) for on in Condition.values}


def settle() -> None:
    for _ in range(20):
        if not Unsettled.objects.exists():
            return
        with transaction.atomic(), connection.cursor() as cursor:
            runs.settle(cursor, limit=100)
    pytest.fail("the outbox is not emptied")


def assert_they_follow(parent: Any, waiting: dict[str, Any]) -> None:
    settle()
    succeeded = row(parent).status == Status.SUCCEEDED
    for on, child in waiting.items():
        goes = on == "any" or succeeded == (on == "success")
        assert (on, row(child).status) == (on, Status.QUEUED if goes else Status.SKIPPED)


# What waits


def ready(key: str) -> Any:
    return tasks.add.using(key=key).enqueue(1)


def scheduled(key: str) -> Any:
    return tasks.add.using(key=key, run_after=timedelta(hours=1)).enqueue(1)


def blocked(key: str) -> Any:
    return tasks.add.using(key=key, after=tasks.add.using(queue_name="nobody").enqueue(1)).enqueue(1)


def waiting_for_its_retry(key: str) -> Any:
    run = tasks.add.using(key=key).enqueue(1)
    (claimed,) = claim()
    complete(claimed, RETRY, delay=timedelta(hours=1))
    return run


def queued_for_its_retry(key: str) -> Any:
    run = tasks.add.using(key=key).enqueue(1)
    (claimed,) = claim()
    complete(claimed, RETRY)
    return run


WAITING = {
    ready: Status.QUEUED,
    scheduled: Status.SCHEDULED,
    blocked: Status.BLOCKED,
    waiting_for_its_retry: Status.SCHEDULED,
    queued_for_its_retry: Status.QUEUED,
}


@pytest.mark.parametrize("make", WAITING)
def test_b34_what_waits_is_cancelled_at_once_and_for_good(
    became: Callable[[Any], list[str]], make: Callable[[str], Any]
) -> None:
    run = make("k")
    waiting = children(run)
    before = row(run)
    assert before.status == WAITING[make]
    assert not tasks.add.using(key="k").enqueue(1).created
    states = became(run)
    assert cancel(run, actor="ada") == Cancelled(cancelled=1, requested=0, ended=0)
    assert tasks.add.using(key="k", queue_name="later").enqueue(1).created  # its key is free in the same moment
    after = row(run)
    assert (after.status, after.reason, after.error) == (Status.CANCELLED, Reason.REQUESTED, "Cancelled by ada.")
    assert after.attempts == before.attempts
    assert_they_follow(run, waiting)
    Run.objects.filter(status=Status.SCHEDULED).update(due_at=timezone.now())
    assert claim(limit=100) == []
    assert cancel(run) == Cancelled(cancelled=0, requested=0, ended=1)  # twice
    assert became(run) == [*states, "cancelled"]
    assert row(run).finished_at == after.finished_at


@pytest.mark.parametrize("how", [SUCCESS, FAILURE, (Outcome.FAILED, Status.FAILED, Reason.DISCARDED)])
def test_b34_what_has_ended_stays_as_it_is(
    became: Callable[[Any], list[str]], how: tuple[Outcome, Status, str]
) -> None:
    run = tasks.add.using(key="k").enqueue(1)
    waiting = children(run)
    complete(*claim(), how)
    before = Run.objects.values().get(pk=run.id)
    states = became(run)
    assert states == ["running", how[1]]
    assert cancel(run) == Cancelled(cancelled=0, requested=0, ended=1)
    assert Run.objects.values().get(pk=run.id) == before
    assert became(run) == states
    assert_they_follow(run, waiting)


@pytest.mark.parametrize("status", [Status.QUEUED, Status.SUCCEEDED, Status.FAILED])
def test_b34_a_cancelled_run_cannot_become_anything_else(status: Status) -> None:
    run = tasks.add.enqueue(1)
    cancel(run)
    with pytest.raises(IntegrityError, match="has ended"):
        Run.objects.filter(pk=run.id).update(
            status=status,
            reason=Reason.ERROR if status == Status.FAILED else "",
            finished_at=None if status == Status.QUEUED else timezone.now(),
        )
    assert row(run).status == Status.CANCELLED


# What runs: the request, and what came of the attempt


@pytest.mark.parametrize("how", OUTCOMES)
def test_b34_after_a_request_only_a_success_is_no_cancel(became: Callable[[Any], list[str]], how: str) -> None:
    """It failed once it was cancelled, and was tried again, and again."""
    run = tasks.add.using(key="k", max_attempts=9).enqueue(1)
    waiting = children(run)
    (claimed,) = claim()
    assert cancel(run) == Cancelled(cancelled=0, requested=1, ended=0)
    assert row(run).status == Status.RUNNING
    assert not tasks.add.using(key="k").enqueue(1).created
    assert complete(claimed, OUTCOMES[how]).accepted
    ended = Status.SUCCEEDED if how == "success" else Status.CANCELLED
    assert (row(run).status, row(run).reason) == (ended, "" if how == "success" else Reason.REQUESTED)
    assert tasks.add.using(key="k", queue_name="later").enqueue(1).created
    assert_they_follow(run, waiting)
    assert not complete(claimed, FAILURE).accepted  # a second answer of the same attempt
    assert claim(limit=100) == []
    assert became(run) == ["running", ended]


@pytest.mark.parametrize("attempts", [1, 9])
def test_b34_a_request_outlives_the_worker(became: Callable[[Any], list[str]], leading: Fence, attempts: int) -> None:
    runs_ = [tasks.add.using(max_attempts=attempts, key=str(number)).enqueue(1) for number in range(3)]
    waiting = [children(run) for run in runs_]
    (first, second), (third,) = claim(limit=2, worker=(dead := uuid7())), claim(lease=-1)
    with transaction.atomic(), connection.cursor() as cursor:
        marked = runs.mark_started(cursor, [(first.id, first.claim, timedelta())])  # of the others it is not known
    assert (marked == set()) == (attempts == 1)  # the last attempt counts from its claim
    assert cancel(*runs_).requested == 3
    with transaction.atomic(), connection.cursor() as cursor:
        taken_back = runs.take_back_from(cursor, dead)
    assert taken_back == {first.id: Status.CANCELLED, second.id: Status.CANCELLED}
    with leading.transaction() as tx:
        assert Rescue().step(tx) == 1
    assert claim(limit=100) == []
    for number, (run, those) in enumerate(zip(runs_, waiting, strict=True)):
        assert became(run) == ["running", "cancelled"]
        assert tasks.add.using(key=str(number), queue_name="later").enqueue(1).created
        assert_they_follow(run, those)
    for claimed in (first, second, third):
        assert not complete(claimed, SUCCESS).accepted  # it was not dead after all, and comes too late
        assert row(claimed).status == Status.CANCELLED


def test_b34_a_second_request_changes_nothing_and_does_not_say_that_the_run_has_ended() -> None:
    """It still ran, and who cancelled it for the second time was told that it had ended."""
    run = tasks.add.enqueue(1)
    (claimed,) = claim()
    cancel(run)
    asked_at = row(run).cancel_requested_at
    again = cancel(run)
    assert row(run).cancel_requested_at == asked_at
    assert row(run).status == Status.RUNNING
    assert again.ended == 0
    complete(claimed, RETRY)
    assert row(run).status == Status.CANCELLED


@pytest.mark.parametrize("how", ["success", "failure", "retry"])
@pytest.mark.parametrize("first", ["request", "request, open", "outcome, open"])
def test_b34_a_request_between_the_return_and_the_storing_of_its_result(
    became: Callable[[Any], list[str]], first: str, how: str
) -> None:
    """The row said "cancelled", then "completed", and of two that waited for it both went on. On two sessions, in each
    order: the outcome after a request; while one is open; and the request while an outcome is written."""
    canceller, worker = connect("default", name="canceller"), connect("default", name="worker")
    for _ in range(REPEATS // 2 if how == "success" else 20):
        run = tasks.add.using(max_attempts=1 if how == "failure" else 9).enqueue(1)
        waiting = children(run)
        (claimed,) = claim()
        outcome = [outcome_of(claimed, OUTCOMES[how])]
        key = claimed.id, claimed.claim
        if first == "request":
            with on_session(canceller) as theirs:
                assert runs.request_cancel(theirs, [claimed.id]) == [claimed.id]
            with on_session(worker) as cursor:
                assert key in runs.complete_runs(cursor, outcome).accepted
        elif first == "request, open":
            with on_session(canceller) as theirs:
                assert runs.request_cancel(theirs, [claimed.id]) == [claimed.id]
                with on_session(worker) as cursor:
                    assert runs.complete_runs(cursor, outcome).busy == {key}  # at once, and sent again
            with on_session(worker) as cursor:
                assert key in runs.complete_runs(cursor, outcome).accepted
        else:
            with on_session(worker) as cursor:
                assert key in runs.complete_runs(cursor, outcome).accepted
                with on_session(canceller) as theirs:
                    assert runs.request_cancel(theirs, [claimed.id]) == []
                    assert runs.cancel_waiting(theirs, ids=[claimed.id]) == []
            told = cancel(run)  # which comes again
            assert told == Cancelled(cancelled=int(how == "retry"), requested=0, ended=int(how != "retry"))
        requested = first != "outcome, open"
        ends = {"success": "succeeded", "failure": "cancelled" if requested else "failed", "retry": "cancelled"}[how]
        between = ["queued"] if how == "retry" and not requested else []
        assert became(run) == ["running", *between, ends]
        assert_they_follow(run, waiting)
        assert claim(limit=100) == []
    canceller.close()
    worker.close()


def test_b34_who_cancels_while_an_outcome_is_written_is_told_what_it_came_to() -> None:
    worker = connect("default", name="worker")
    with ThreadPoolExecutor(1) as thread:
        run = tasks.add.enqueue(1)
        (claimed,) = claim()
        with on_session(worker) as cursor:
            assert runs.complete_runs(cursor, [outcome_of(claimed, SUCCESS)]).accepted
            assert cancel(run) == Cancelled(cancelled=0, requested=0, ended=0, busy=1)  # for a second, it tried
            told = thread.submit(_cancel_elsewhere, run)
        assert told.result() == Cancelled(cancelled=0, requested=0, ended=1)
    worker.close()
    assert row(run).status == Status.SUCCEEDED


def _cancel_elsewhere(run: Any) -> Cancelled:
    try:
        return cancel(run)
    finally:
        connection.close()


# With all the processes


STUBBORN = """
import time
from pathlib import Path
from cronoq_django import task


def begin(path):
    with Path(path).open("a") as file:
        file.write("begun\\n")


def hang():
    while True:
        time.sleep(0.01)


@task
def return_anyway(path):
    begin(path)
    try:
        hang()
    except BaseException:
        return "done all the same"


@task
def fail_anyway(path):
    begin(path)
    try:
        hang()
    except BaseException:
        raise ValueError("something else") from None
"""


def begun(path: Path) -> int:
    return path.read_text().count("begun") if path.exists() else 0


def test_b34_running_work_is_stopped_where_it_can_be(
    fleet: Fleet, wait_until: Callable[..., Any], became: Callable[[Any], list[str]], tmp_path: Path
) -> None:
    """A coroutine, a function in Python code, one within a call into C, and two that won't hear of it."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "stubborn.py").write_text(STUBBORN)
    paths = {name: tmp_path / name for name in ("return_anyway", "fail_anyway", "c")}
    hold = tasks.hold.using(key="c")
    cases: dict[str, tuple[Any, str]] = {
        "coroutine": (tasks.sleep_async.using(key="coroutine").enqueue(60), "cancelled"),
        "python": (tasks.never_return.using(key="python", timeout=60, max_attempts=9).enqueue(), "cancelled"),
        "c": (hold.enqueue(str(paths["c"]), 4), "cancelled"),
        **{
            name: (
                Run.objects.create(
                    trigger="enqueue", status="queued", script=f"stubborn.{name}", args=[str(paths[name])]
                ),
                ends,
            )
            for name, ends in (("return_anyway", "succeeded"), ("fail_anyway", "cancelled"))
        },
    }
    every = [run for run, _ in cases.values()]
    waiting = {name: children(run) for name, (run, _) in cases.items()}
    fleet.leader()
    fleet.worker("--pool", "default=5", PYTHONPATH=str(tmp_path / "code"), CRONOQ_IMPORTS="stubborn")
    wait_until(lambda: all(row(run).started_at for run in every) and all(begun(path) for path in paths.values()))
    asked = timezone.now()
    assert cancel(*every, actor="ada") == Cancelled(cancelled=0, requested=5, ended=0)
    wait_until(lambda: all(row(run).finished_at for run in every))
    for name, (run, ends) in cases.items():
        ended = row(run)
        assert (name, ended.status, ended.attempts) == (name, ends, 1)
        assert (name, became(run)) == (name, ["running", ends])
        if name != "c":
            assert ended.finished_at is not None
            assert ended.finished_at - asked < timedelta(seconds=10), name
        if ended.key:
            assert tasks.add.using(key=ended.key, queue_name="later").enqueue(1).created
    assert paths["c"].read_text().count("ended") == 0  # interrupted as soon as the call was over
    assert row(cases["return_anyway"][0]).result == "done all the same"
    later = [child for those in waiting.values() for child in those.values()]
    wait_until(lambda: not any(row(child).status == Status.BLOCKED for child in later))
    for name, (run, _) in cases.items():
        assert_they_follow(run, waiting[name])
    last = tasks.add.enqueue(1)  # the worker is as good as before, and has had time for another attempt
    wait_until(lambda: row(last).finished_at)
    assert {name: begun(path) for name, path in paths.items()} == dict.fromkeys(paths, 1)


@pytest.mark.parametrize("whom", ["the child", "all"])
def test_b34_a_worker_killed_just_after_the_request_gets_no_successor(
    fleet: Fleet, wait_until: Callable[..., Any], became: Callable[[Any], list[str]], tmp_path: Path, whom: str
) -> None:
    """It hung, was cancelled, its worker was killed for good measure; and the next worker took it up and hung."""
    path = tmp_path / "held"
    fleet.leader()
    worker = fleet.worker("--pool", "default=1")
    run = tasks.hold.using(key="k").enqueue(str(path), 60)
    waiting = children(run)
    wait_until(lambda: row(run).started_at and begun(path))
    assert cancel(run).requested == 1
    if whom == "all":
        worker.kill()
        fleet.worker("--pool", "default=1")
    else:
        os.kill(int(path.read_text().split()[0]), signal.SIGKILL)
    wait_until(lambda: row(run).finished_at)
    ended = row(run)
    assert (ended.status, ended.reason, ended.attempts) == (Status.CANCELLED, Reason.REQUESTED, 1)
    assert Attempt.objects.get(run=ended.pk).outcome == Outcome.LOST
    again = tasks.hold.using(key="k").enqueue(str(path), 0)
    assert again.created
    wait_until(lambda: row(again).finished_at)
    assert begun(path) == 2  # the first one and this
    assert became(run) == ["running", "cancelled"]
    assert_they_follow(run, waiting)


# The admin


def test_b34_the_admin_says_how_many_were_cancelled_and_how_many_could_not_be() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    ended = [tasks.add.enqueue(1) for _ in range(4)]
    for claimed in claim(limit=4):
        complete(claimed, SUCCESS)
    running = [tasks.add.enqueue(1) for _ in range(2)]
    assert len(claim(limit=2)) == 2
    waiting = [tasks.add.enqueue(1), tasks.add.using(run_after=timedelta(hours=1)).enqueue(1), blocked("k")]
    held = tasks.add.enqueue(1)

    def press(*chosen: Any) -> str:
        data = {"action": "cancel", "_selected_action": [str(run.id) for run in chosen], "confirmed": "yes"}
        response = client.post(f"{reverse('admin:cronoq_run_changelist')}?within=all", data, follow=True)
        return " ".join(str(message) for message in response.context["messages"])

    console = connect("default", name="console")
    with on_session(console) as theirs:
        theirs.execute("SELECT FROM cronoq_run WHERE id = %s FOR UPDATE", (held.id,))
        told = press(*ended, *running, *waiting, held)
    console.close()
    expected = "3 runs were cancelled. 2 were asked to stop. 4 could not be cancelled. 1 is busy: try again."
    assert told == expected
    assert press(held) == "1 run was cancelled."
    assert press(*waiting, *ended) == "7 could not be cancelled."
    assert {row(run).status for run in ended} == {Status.SUCCEEDED}
    assert {row(run).status for run in [*waiting, held]} == {Status.CANCELLED}
    assert not Run.objects.filter(pk__in=[run.id for run in running], status__in=TERMINAL).exists()
