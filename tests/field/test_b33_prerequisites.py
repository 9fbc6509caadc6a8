"""Two workflows that waited for each other were accepted, and sat in the queue for ever with all that came after them.

Children of a parent that had failed, was cancelled, deleted or long finished stayed "deferred" for good; others ran
although their parent was cancelled; one that was added after its parent had expired was never released. Here a circle
is refused, and named, when it is enqueued; whatever ends a run, and wherever, what waits for it is queued or skipped,
as its condition says. What was deleted did not succeed; what is between two attempts has not ended.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from cronoq_django import Backoff, cancel, enqueue_many
from cronoq_django.errors import NotFound
from cronoq_django.leader.fence import Fence
from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages.expire import Expire
from cronoq_django.leader.stages.prune import Prune
from cronoq_django.leader.stages.quarantine import Quarantine
from cronoq_django.leader.stages.rescue import Rescue
from cronoq_django.leader.stages.settle import Settle
from cronoq_django.models import Dependency, Run, Unsettled
from cronoq_django.models.choices import Condition, Outcome, Reason, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import runs
from cronoq_django.tasks.bound import Bound
from tests import tasks
from tests.fault.conftest import Fleet

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

POLL = 0.5  # seconds: a leader that nobody notifies looks so often


def step(stage: Stage, fence: Fence) -> int:
    with fence.transaction() as tx:
        return stage.step(tx)


def settle(fence: Fence) -> int:
    """Steps of the leader until there is nothing more to settle; how many."""
    steps = 0
    while Unsettled.objects.exists():
        step(Settle(), fence)
        steps += 1
        assert steps < 100
    return steps


def row(run: Any) -> Run:
    return Run.objects.get(pk=run.id)


def claim(worker: UUID | None = None, *, lease: float = 60) -> list[runs.ClaimedRun]:
    with transaction.atomic(), connection.cursor() as cursor:
        return runs.claim_runs(
            cursor, worker=worker or uuid7(), pool="default", limit=100, lease=timedelta(seconds=lease)
        )


def complete(outcome: Outcome, status: Status, reason: str = "", delay: float = 0) -> None:
    """As a worker that has one run in hand."""
    (claimed,) = claim()
    completion = runs.Completion(
        id=claimed.id,
        claim=claimed.claim,
        outcome=outcome,
        status=status,
        reason=reason,
        took=timedelta(seconds=1),
        delay=timedelta(seconds=delay),
    )
    with transaction.atomic(), connection.cursor() as cursor:
        assert runs.complete_runs(cursor, [completion]).accepted


# Circles


def circle(*members: Bound) -> str:
    """Refused by name, with nothing stored: the refusal."""
    with pytest.raises(ValueError, match="wait for each other") as refusal:
        enqueue_many(members)
    assert not Run.objects.exists()
    assert not Dependency.objects.exists()
    assert not Unsettled.objects.exists()
    return str(refusal.value)


def test_b33_one_that_waits_for_itself_is_refused() -> None:
    a = tasks.add.bind(1)
    assert circle(a.wait_for(a)).count(str(a.id)) == 2


def test_b33_two_that_wait_for_each_other_are_refused_and_named() -> None:
    a, b = tasks.add.bind(1), tasks.echo.bind(2)
    told = circle(a.wait_for(b), b.wait_for(a), tasks.add.bind(3))
    assert "tests.tasks.add" in told
    assert "tests.tasks.echo" in told
    assert str(a.id) in told
    assert str(b.id) in told


def test_b33_a_circle_of_a_thousand_is_refused_without_a_recursion() -> None:
    members = [tasks.add.bind(number) for number in range(1000)]
    for before, after in zip(members, [*members[1:], members[0]], strict=True):
        after.wait_for(before)
    assert len(circle(*members)) > 1000 * 36


def test_b33_an_edge_added_later_closes_no_circle(leading: Fence) -> None:
    a, b = tasks.add.bind(1), tasks.add.bind(2)
    enqueue_many([a, b.wait_for(a)])
    stored = list(Dependency.objects.values())
    a.wait_for(b)
    with pytest.raises(ValueError, match="wait for each other"):
        enqueue_many([a, b])
    # Alone, the one is there already: it is as it was.
    assert [result.created for result in enqueue_many([a])] == [False]
    # Nor is there one by its id alone.
    assert [result.created for result in enqueue_many([tasks.add.using(after=b).bind(1), a])] == [True, False]
    assert list(Dependency.objects.filter(pk__in=[one["id"] for one in stored]).values()) == stored
    assert not Dependency.objects.filter(run=a.id).exists()
    complete(Outcome.SUCCEEDED, Status.SUCCEEDED)
    settle(leading)
    assert (row(a).status, row(b).status) == (Status.SUCCEEDED, Status.QUEUED)


def test_b33_an_edge_added_in_a_transaction_of_its_own_closes_no_circle() -> None:
    a, b = tasks.add.bind(1), tasks.add.bind(2)
    with pytest.raises(NotFound, match=str(b.id)):
        enqueue_many([a.wait_for(b)])
    enqueue_many([b])
    enqueue_many([a])
    b.wait_for(a)
    assert [result.created for result in enqueue_many([b])] == [False]
    assert list(Dependency.objects.values_list("run", "prerequisite")) == [(a.id, b.id)]


@pytest.mark.parametrize("between", [0, 1])
def test_b33_no_circle_comes_about_by_a_key(leading: Fence, between: int) -> None:
    """Of two with the same key, the first one in stands for the other, and so it may come to wait for itself: such an
    enqueue is refused like any circle, or it makes none. It may not be stored as one that can never begin."""
    last = tasks.add.using(key="k").bind(1)
    chain = [tasks.add.using(after=last).bind(2)] if between else []
    first = tasks.add.using(key="k", after=[(chain or [last])[-1]]).bind(3)
    try:
        enqueue_many([first, *chain, last])
    except ValueError as refusal:
        assert "wait for each other" in str(refusal)  # noqa: PT017
        assert not Run.objects.exists()
    else:
        assert claim(), "nothing of it can ever begin"


# Long ones and wide ones


def test_b33_a_chain_of_a_thousand_ends(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """Each link is queued by the worker that completed the one before: it must not need a poll to hear of that."""
    members = [tasks.add.bind(0)]
    for number in range(1, 1000):
        members.append(tasks.add.bind(number).wait_for(members[-1]))
    fleet.leader()
    fleet.worker()
    wait_until(_is_up)
    begun = time.monotonic()
    enqueue_many(members[::-1])
    wait_until(lambda: row(members[-1]).finished_at)
    took = time.monotonic() - begun
    chain = Run.objects.filter(pk__in=[one.id for one in members]).order_by("id")
    assert set(chain.values_list("status", "attempts")) == {(Status.SUCCEEDED, 1)}
    ended = [one.finished_at for one in chain]
    assert len(ended) == 1000
    assert ended == sorted(ended)  # one after the other
    print(f"a chain of 1,000: {took:.1f} s")


def test_b33_a_chain_of_a_thousand_is_skipped_when_its_first_is_cancelled(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    members = [tasks.add.bind(0)]
    for number in range(1, 1000):
        members.append(tasks.add.bind(number).wait_for(members[-1]))
    fleet.leader()
    wait_until(_is_led)
    enqueue_many(members)
    begun = time.monotonic()
    assert cancel(members[0]).cancelled == 1
    wait_until(lambda: row(members[-1]).finished_at)
    took = time.monotonic() - begun
    assert Run.objects.filter(status=Status.SKIPPED, reason=Reason.PREREQUISITE).count() == 999
    print(f"skipping a chain of 1,000: {took:.1f} s")


def test_b33_one_that_waits_for_500_runs_once(fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Any) -> None:
    first = [tasks.add.bind(number) for number in range(500)]
    last = tasks.count_line.using(after=first).bind(str(tmp_path / "lines"))
    after = tasks.add.using(after=last).bind(1)
    fleet.leader()
    fleet.worker("--pool", "default=4", "--processes", "2")
    wait_until(_is_up)
    begun = time.monotonic()
    enqueue_many([*first, last, after])
    wait_until(lambda: row(after).finished_at)
    took = time.monotonic() - begun
    every = Run.objects.filter(pk__in=[one.id for one in [*first, last, after]])
    assert set(every.values_list("status", "attempts")) == {(Status.SUCCEEDED, 1)}
    assert (tmp_path / "lines").read_text().splitlines() == ["ran"]
    assert max(row(one).finished_at for one in first) <= row(last).finished_at
    print(f"a fan-in of 500: {took:.1f} s")


def _is_led() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM cronoq_leader")
        return bool(cursor.fetchone()[0])


def _is_up(workers: int = 1) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM cronoq_worker WHERE status = 'online'")
        return int(cursor.fetchone()[0]) >= workers and _is_led()


# Each way to end


def succeed(parent: Any, fence: Fence) -> None:
    complete(Outcome.SUCCEEDED, Status.SUCCEEDED)


def fail(parent: Any, fence: Fence) -> None:
    complete(Outcome.FAILED, Status.FAILED, Reason.ERROR)


def time_out(parent: Any, fence: Fence) -> None:
    complete(Outcome.TIMED_OUT, Status.FAILED, Reason.TIMEOUT)


def quarantine_at_the_worker(parent: Any, fence: Fence) -> None:
    complete(Outcome.FAILED, Status.FAILED, Reason.QUARANTINED)


def quarantine_by_the_leader(parent: Any, fence: Fence) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cronoq_run SET args = '7' WHERE id = %s", [parent.id])
    assert step(Quarantine(), fence) == 1


def cancel_it(parent: Any, fence: Fence) -> None:
    assert cancel(parent).cancelled == 1


def cancel_while_it_runs(parent: Any, fence: Fence) -> None:
    (claimed,) = claim()
    assert cancel(parent).requested == 1
    completion = runs.Completion(
        id=claimed.id, claim=claimed.claim, outcome=Outcome.CANCELLED, status=Status.CANCELLED, reason=Reason.REQUESTED
    )
    with transaction.atomic(), connection.cursor() as cursor:
        assert runs.complete_runs(cursor, [completion]).accepted


def lose(parent: Any, fence: Fence) -> None:
    """Its worker was killed, and it had no further attempt."""
    Run.objects.filter(pk=parent.id).update(max_attempts=1)
    claim(lease=-1)
    assert step(Rescue(), fence) == 1


def expire(parent: Any, fence: Fence) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cronoq_run SET expires_at = clock_timestamp() WHERE id = %s", [parent.id])
    assert step(Expire(), fence) == 1


def delete(parent: Any, fence: Fence) -> None:
    Run.objects.get(pk=parent.id).delete()


def delete_by_queryset(parent: Any, fence: Fence) -> None:
    Run.objects.filter(pk=parent.id).delete()


def delete_by_sql(parent: Any, fence: Fence) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM cronoq_run WHERE id = %s", [parent.id])


ENDS: dict[Callable[..., None], Status | None] = {
    succeed: Status.SUCCEEDED,
    fail: Status.FAILED,
    time_out: Status.FAILED,
    quarantine_at_the_worker: Status.FAILED,
    quarantine_by_the_leader: Status.FAILED,
    cancel_it: Status.CANCELLED,
    cancel_while_it_runs: Status.CANCELLED,
    lose: Status.FAILED,
    expire: Status.FAILED,
    delete: None,
    delete_by_queryset: None,
    delete_by_sql: None,
}
EXISTING = [end for end, ended in ENDS.items() if ended is not None]


def becomes(ended: Status | None, on: str) -> Status:
    if on == "any" or (ended == Status.SUCCEEDED) == (on == "success"):
        return Status.QUEUED
    return Status.SKIPPED


def children(parent: Any) -> dict[str, Any]:
    """One of each condition."""
    return {on: tasks.add.using(after=parent, on=on).enqueue(2) for on in Condition.values}


def assert_done(parent: Any, waiting: dict[str, Any], ended: Status | None) -> None:
    """In the state that is documented, with the reason; nothing waits, and nothing holds the parent."""
    for on, child in waiting.items():
        run = row(child)
        assert (on, run.status) == (on, becomes(ended, on))
        if run.status == Status.SKIPPED:
            how = "was deleted" if ended is None else f"ended {ended}"
            assert (run.reason, run.error) == (Reason.PREREQUISITE, f"The prerequisite {parent.id} {how}.")
    assert not Dependency.objects.filter(settled_at=None).exists()


@pytest.mark.parametrize("end", ENDS)
def test_b33_a_child_follows_the_end_of_its_parent(leading: Fence, end: Callable[..., None]) -> None:
    parent = tasks.add.enqueue(1)
    waiting = children(parent)
    settle(leading)
    assert {row(child).status for child in waiting.values()} == {Status.BLOCKED}
    end(parent, leading)
    if (ended := ENDS[end]) is not None:
        assert row(parent).status == ended
    assert settle(leading) <= 2  # polls
    assert_done(parent, waiting, ended)


@pytest.mark.parametrize("end", EXISTING)
def test_b33_a_child_of_a_parent_that_had_ended_before_follows_too(leading: Fence, end: Callable[..., None]) -> None:
    parent = tasks.add.enqueue(1)
    end(parent, leading)
    waiting = children(parent)
    assert settle(leading) <= 2
    assert_done(parent, waiting, ENDS[end])


@pytest.mark.parametrize("when", ["before", "after"])
def test_b33_a_child_of_a_parent_that_is_skipped_follows(leading: Fence, when: str) -> None:
    first = tasks.add.enqueue(1)
    parent = tasks.add.using(after=first).enqueue(2)
    waiting = children(parent) if when == "before" else {}
    fail(first, leading)
    settle(leading)
    waiting = waiting or children(parent)
    settle(leading)
    assert row(parent).status == Status.SKIPPED
    assert_done(parent, waiting, Status.SKIPPED)


def test_b33_a_child_added_after_its_parent_is_past_its_deadline_follows(leading: Fence) -> None:
    """The parent could not begin any more, but nobody had said so yet."""
    parent = tasks.add.using(expires=timedelta(microseconds=1)).enqueue(1)
    assert claim() == []
    waiting = children(parent)
    settle(leading)
    assert step(Expire(), leading) == 1
    settle(leading)
    assert row(parent).reason == Reason.EXPIRED
    assert_done(parent, waiting, Status.FAILED)


def test_b33_a_child_has_a_deadline_of_its_own(leading: Fence) -> None:
    parent = tasks.add.enqueue(1)
    child = tasks.add.using(after=parent, expires=timedelta(microseconds=1)).enqueue(2)
    grandchild = tasks.add.using(after=child, on="failure").enqueue(3)
    assert step(Expire(), leading) == 1
    settle(leading)
    assert (row(child).reason, row(grandchild).status) == (Reason.EXPIRED, Status.QUEUED)
    succeed_among = [one for one in claim() if one.id == UUID(parent.id)]
    assert len(succeed_among) == 1  # the parent is what it was


def test_b33_no_parent_no_child() -> None:
    gone = tasks.add.enqueue(1)
    Run.objects.filter(pk=gone.id).delete()
    for missing in (gone, uuid4()):
        for on in Condition.values:
            with pytest.raises(NotFound, match="after: there is no run"):
                enqueue_many([tasks.add.bind(2), tasks.add.bind(3).wait_for(missing, on=on)])
    assert not Run.objects.exists()
    assert not Dependency.objects.exists()


@pytest.mark.parametrize("lost", [False, True])
def test_b33_a_parent_between_two_attempts_has_not_failed(leading: Fence, lost: bool) -> None:
    parent = tasks.add.using(max_attempts=2).enqueue(1)
    waiting = children(parent)
    if lost:
        claim(lease=-1)
        Run.objects.filter(pk=parent.id).update(started_at=row(parent).created_at)
        assert step(Rescue(), leading) == 1
    else:
        complete(Outcome.FAILED, Status.QUEUED, delay=0)
    settle(leading)
    assert (row(parent).status, row(parent).attempts) == (Status.QUEUED, 1)
    assert {row(child).status for child in waiting.values()} == {Status.BLOCKED}
    late = children(parent)  # nor has it for one that comes now
    settle(leading)
    assert {row(child).status for child in late.values()} == {Status.BLOCKED}
    succeed(parent, leading)
    settle(leading)
    assert_done(parent, waiting, Status.SUCCEEDED)
    assert_done(parent, late, Status.SUCCEEDED)


# Purging


def test_b33_a_purge_leaves_what_something_waits_for(leading: Fence, settings: Any) -> None:
    settings.CRONOQ = {**settings.CRONOQ, "RETENTION": 0}
    parent = tasks.add.enqueue(1)
    succeed(parent, leading)
    other = tasks.add.enqueue(2)
    both = tasks.add.using(after=[parent, other]).enqueue(3)
    step(Prune(), leading)
    assert row(parent).status == Status.SUCCEEDED  # nobody has looked yet how it ended
    settle(leading)
    succeed(other, leading)
    settle(leading)
    assert row(both).status == Status.QUEUED
    step(Prune(), leading)
    assert list(Run.objects.values_list("pk", flat=True)) == [UUID(both.id)]
    assert not Dependency.objects.filter(settled_at=None).exists()


@pytest.mark.parametrize("on", Condition.values)
def test_b33_a_purge_before_the_leader_has_looked_changes_nothing(leading: Fence, settings: Any, on: str) -> None:
    settings.CRONOQ = {**settings.CRONOQ, "RETENTION": 0}
    parent = tasks.add.enqueue(1)
    succeed(parent, leading)
    child = tasks.add.using(after=parent, on=on).enqueue(2)
    step(Prune(), leading)
    settle(leading)
    assert row(child).status == becomes(Status.SUCCEEDED, on)
    assert "deleted" not in row(child).error


@pytest.mark.parametrize("gone", ["cancelled", "deleted"])
def test_b33_what_does_not_wait_any_more_keeps_nothing_from_the_purge(leading: Fence, settings: Any, gone: str) -> None:
    """Parents of children that somebody had deleted could never be removed: the note that they wait outlived them."""
    settings.CRONOQ = {**settings.CRONOQ, "RETENTION": 0}
    parent = tasks.add.enqueue(1)
    child = tasks.add.using(after=parent).enqueue(2)
    if gone == "cancelled":
        cancel(child)
    else:
        Run.objects.filter(pk=child.id).delete()
    succeed(parent, leading)
    settle(leading)
    for _ in range(3):
        step(Prune(), leading)
    assert not Run.objects.exists()
    assert not Dependency.objects.exists()


# With all the processes


def test_b33_all_ends_with_a_leader_and_workers(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    fleet.leader()
    fleet.worker()
    fleet.worker("--pool", "doomed=1")
    wait_until(lambda: _is_up(2))
    once = Backoff(first=0)
    parents = {
        "success": (tasks.add.enqueue(1), Status.SUCCEEDED),
        "success at the third attempt": (tasks.succeed_on.using(backoff=once).enqueue(3), Status.SUCCEEDED),
        "failure": (tasks.fail.using(max_attempts=1).enqueue(), Status.FAILED),
        "failure after all attempts": (tasks.fail.enqueue(), Status.FAILED),
        "discarded": (tasks.discard.enqueue(), Status.FAILED),
        "timeout": (tasks.never_return.enqueue(), Status.FAILED),
        "unstorable": (tasks.unstorable.enqueue(), Status.FAILED),
        "expiry": (tasks.add.using(queue_name="nobody", expires=timedelta(seconds=1)).enqueue(1), Status.FAILED),
        "cancel": (tasks.add.using(run_after=timedelta(hours=1)).enqueue(1), Status.CANCELLED),
        "cancel of a running one": (tasks.sleep_async.enqueue(60), Status.CANCELLED),
        "kill": (tasks.leave_a_mess.using(max_attempts=1, queue_name="doomed").enqueue("kill"), Status.FAILED),
        "deletion": (tasks.add.using(run_after=timedelta(hours=1)).enqueue(2), None),
    }
    broken = Run.objects.create(trigger="enqueue", status="queued", script="tests.tasks.add", args=7)
    unknown = Run.objects.create(trigger="enqueue", status="queued", script="tests.tasks.gone")
    parents |= {"quarantine": (broken, Status.FAILED), "unknown": (unknown, Status.FAILED)}
    waiting = {name: children(parent) for name, (parent, _) in parents.items()}
    skipped = waiting["failure"]["success"]
    parents["skip"] = (skipped, Status.SKIPPED)
    waiting["skip"] = children(skipped)
    cancel(parents["cancel"][0])
    Run.objects.filter(pk=parents["deletion"][0].id).delete()
    running = parents["cancel of a running one"][0]
    wait_until(lambda: row(running).status == Status.RUNNING)
    assert cancel(running).requested == 1
    every = [child.id for those in waiting.values() for child in those.values()]
    wait_until(lambda: not Run.objects.filter(pk__in=every, finished_at=None).exists())
    for name, (parent, ended) in parents.items():
        if ended is not None:
            assert (name, row(parent).status) == (name, ended)
        for on, child in waiting[name].items():
            expected = Status.SUCCEEDED if becomes(ended, on) == Status.QUEUED else Status.SKIPPED
            assert (name, on, row(child).status, row(child).attempts) == (
                name, on, expected, int(expected == Status.SUCCEEDED)
            )  # fmt: skip
            if ended is not None:
                assert row(child).finished_at >= row(parent).finished_at
                # Two polls of the leader, and two of a worker that nobody would wake.
                assert row(child).finished_at - row(parent).finished_at < timedelta(seconds=2 * POLL + 8), name
    assert not Dependency.objects.filter(settled_at=None).exists()
