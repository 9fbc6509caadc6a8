"""Keys, prerequisites, deadlines and many at once: what becomes of them in one process."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from datetime import timezone as zone
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from cronoq_django import Duplicate, cancel, enqueue_many, get_run, retry
from cronoq_django.compat import InvalidTask
from cronoq_django.errors import NotFound
from cronoq_django.models import Dependency, Run, Unsettled
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.store.runs import ClaimedRun, Completion, claim_runs, complete_runs, expire, settle
from cronoq_django.store.statements import statement
from tests import tasks

pytestmark = pytest.mark.django_db

WORKER = uuid4()


def claim(number: int = 100) -> list[ClaimedRun]:
    with connection.cursor() as cursor:
        return claim_runs(cursor, worker=WORKER, pool="default", limit=number, lease=timedelta(minutes=1))


def complete(run: ClaimedRun, status: Status = Status.SUCCEEDED, reason: Reason | str = "") -> None:
    outcome = Outcome.SUCCEEDED if status == Status.SUCCEEDED else Outcome.FAILED
    with transaction.atomic(), connection.cursor() as cursor:
        took = timedelta(seconds=1)
        completion = Completion(id=run.id, claim=run.claim, outcome=outcome, status=status, reason=reason, took=took)
        assert complete_runs(cursor, [completion]).accepted


def settle_all() -> None:
    while Unsettled.objects.exists():
        with transaction.atomic(), connection.cursor() as cursor:
            settle(cursor, limit=100)


def status_of(run: Any) -> str:
    return Run.objects.get(pk=run.id).status


# Keys


def test_a_key_is_held_by_one_open_run() -> None:
    first = tasks.add.using(key="k").enqueue(1)
    again = tasks.add.using(key="k").enqueue(2)
    assert (first.created, again.created, again.id, again.args) == (True, False, first.id, [1])
    with pytest.raises(Duplicate, match=first.id) as refusal:
        tasks.add.using(key="k", on_duplicate="raise").enqueue(3)
    assert refusal.value.run == UUID(first.id)
    assert Run.objects.count() == 1


@pytest.mark.parametrize("end", ["success", "failure", "cancel"])
def test_a_key_is_free_at_once_when_its_run_has_ended(end: str) -> None:
    first = tasks.add.using(key="k").enqueue(1)
    if end == "cancel":
        cancel(first)
    else:
        complete(claim()[0], *((Status.SUCCEEDED,) if end == "success" else (Status.FAILED, Reason.ERROR)))
    assert tasks.add.using(key="k").enqueue(1).created


def test_a_key_may_be_kept_for_a_while_after_the_end() -> None:
    keyed = tasks.add.using(key="k", key_for=timedelta(days=1))
    first = keyed.enqueue(1)
    complete(claim()[0])
    assert not keyed.enqueue(2).created
    until = Run.objects.get(pk=first.id).key_until
    assert until - Run.objects.get(pk=first.id).finished_at == timedelta(days=1)
    Run.objects.filter(pk=first.id).update(key_until=timezone.now())
    assert keyed.enqueue(3).created
    assert not Run.objects.get(pk=first.id).key_held


def test_the_leader_frees_keys_that_were_kept_long_enough() -> None:
    first = tasks.add.using(key="k", key_for=1).enqueue(1)
    complete(claim()[0])
    Run.objects.filter(pk=first.id).update(key_until=timezone.now())
    with connection.cursor() as cursor:
        expire(cursor, limit=100)
    assert not Run.objects.get(pk=first.id).key_held


def test_a_run_is_found_by_its_key() -> None:
    first = tasks.add.using(key="k").enqueue(1)
    complete(claim()[0])
    assert get_run(key="k").id == UUID(first.id)
    second = tasks.add.using(key="k").enqueue(2)
    assert get_run(key="k").id == UUID(second.id)
    with pytest.raises(NotFound, match="'other'"):
        get_run(key="other")


def test_a_record_has_unix_nanoseconds() -> None:
    result = tasks.add.using(key="k", tags=["billing"], actor="anna", run_after=timedelta(hours=1)).enqueue(1, b=2)
    record = get_run(result.id)
    row = Run.objects.get(pk=result.id)
    assert record == get_run(result) == get_run(row) == get_run(UUID(result.id))
    assert (record.args, record.kwargs, record.tags, record.actor) == ([1], {"b": 2}, ("billing",), "anna")
    assert record.created_at == int(row.created_at.timestamp()) * 10**9 + row.created_at.microsecond * 1000
    assert record.due_at - record.created_at == pytest.approx(3600 * 10**9, abs=10**9)
    assert record.finished_at is None
    for wrong in ("x", None, 7):
        with pytest.raises((ValueError, TypeError)):
            get_run(wrong)
    with pytest.raises(NotFound):
        get_run(uuid4())


def test_a_retry_by_hand_takes_the_key_along_or_finds_who_has_it() -> None:
    first = tasks.add.using(key="k").enqueue(1)
    complete(claim()[0], Status.FAILED, Reason.ERROR)
    (second,) = retry(first).values()
    assert (get_run(key="k").id, get_run(second).retry_of_id) == (second, UUID(first.id))
    assert list(retry(first).values()) == [second]


def test_a_retry_by_hand_takes_a_key_that_is_kept() -> None:
    """It was answered with the old run, which held its key still: nothing was run again."""
    first = tasks.add.using(key="k", key_for=timedelta(days=1)).enqueue(1)
    complete(claim()[0], Status.FAILED, Reason.ERROR)
    (second,) = retry(first).values()
    assert second != UUID(first.id)
    assert (get_run(key="k").id, get_run(second).status) == (second, Status.QUEUED)


# Prerequisites


def test_a_run_waits_for_another_to_succeed() -> None:
    first = tasks.add.enqueue(1)
    second = tasks.add.using(after=[first]).enqueue(2)
    settle_all()
    assert status_of(second) == Status.BLOCKED
    (claimed,) = claim()
    complete(claimed)
    assert status_of(second) == Status.QUEUED
    assert Dependency.objects.get().settled_at is not None


@pytest.mark.parametrize(
    ("on", "ends", "becomes"),
    [
        ("success", Status.SUCCEEDED, Status.QUEUED),
        ("success", Status.FAILED, Status.SKIPPED),
        ("failure", Status.SUCCEEDED, Status.SKIPPED),
        ("failure", Status.FAILED, Status.QUEUED),
        ("any", Status.SUCCEEDED, Status.QUEUED),
        ("any", Status.FAILED, Status.QUEUED),
    ],
)
def test_the_condition_says_how(on: str, ends: Status, becomes: Status) -> None:
    first = tasks.add.enqueue(1)
    second = tasks.add.using(after=first, on=on).enqueue(2)
    complete(claim()[0], ends, Reason.ERROR if ends == Status.FAILED else "")
    assert status_of(second) == becomes
    if becomes == Status.SKIPPED:
        run = Run.objects.get(pk=second.id)
        assert (run.reason, run.error) == (Reason.PREREQUISITE, f"The prerequisite {first.id} ended {ends}.")


def test_what_was_skipped_skips_what_waits_for_it() -> None:
    a, b, c = tasks.add.bind(1), tasks.add.bind(2), tasks.add.bind(3)
    other = tasks.add.using(run_after=timedelta(hours=1)).bind(4)
    enqueue_many([a, b.wait_for(a), other, c.wait_for(b).wait_for(other, on="any")])
    cancel(a)
    settle_all()
    assert [status_of(run) for run in (a, b, c)] == [Status.CANCELLED, Status.SKIPPED, Status.SKIPPED]
    assert not Dependency.objects.filter(settled_at=None).exists()  # what does not wait any more holds nothing


def test_a_prerequisite_that_ended_before_is_seen_by_the_leader() -> None:
    first = tasks.add.enqueue(1)
    complete(claim()[0])
    second = tasks.add.using(after=first).enqueue(2)
    assert status_of(second) == Status.BLOCKED
    settle_all()
    assert status_of(second) == Status.QUEUED


def test_a_deleted_prerequisite_did_not_succeed() -> None:
    first = tasks.add.enqueue(1)
    second, third = tasks.add.using(after=first).enqueue(2), tasks.add.using(after=first, on="failure").enqueue(2)
    Run.objects.filter(pk=first.id).delete()
    settle_all()
    assert (status_of(second), status_of(third)) == (Status.SKIPPED, Status.QUEUED)
    assert "was deleted" in Run.objects.get(pk=second.id).error


def test_a_delay_counts_beside_the_prerequisite() -> None:
    first = tasks.add.enqueue(1)
    second = tasks.add.using(after=first, run_after=timedelta(hours=1)).enqueue(2)
    complete(claim()[0])
    assert status_of(second) == Status.SCHEDULED


def test_an_unknown_prerequisite_is_refused_and_nothing_is_written() -> None:
    with pytest.raises(NotFound, match="after: there is no run"):
        tasks.add.using(after=[uuid4()]).enqueue(1)
    with pytest.raises(InvalidTask, match="after: 'x' is no run"):
        tasks.add.using(after=["x"])
    assert not Run.objects.exists()


def test_a_circle_is_refused_and_named() -> None:
    a, b = tasks.add.bind(1), tasks.echo.bind(2)
    a.wait_for(b)
    b.wait_for(a)
    with pytest.raises(ValueError, match=r"tests.tasks.(add|echo) .* → tests.tasks.(add|echo)"):
        enqueue_many([a, b])
    with pytest.raises(ValueError, match="each other"):
        enqueue_many([a.wait_for(a)])
    assert not Run.objects.exists()


def test_one_that_waits_for_a_duplicate_waits_for_the_run_that_is_there() -> None:
    there = tasks.add.using(key="k").enqueue(1)
    first = tasks.add.using(key="k").bind(1)
    second = tasks.add.using(after=[first]).bind(2)
    results = enqueue_many([second, first])
    assert [result.created for result in results] == [True, False]
    complete(claim()[0])
    assert get_run(there).status == Status.SUCCEEDED
    settle_all()
    assert status_of(second) == Status.QUEUED


def test_a_circle_that_duplicates_close_is_refused() -> None:
    first, again, other = tasks.add.using(key="k").bind(1), tasks.add.using(key="k").bind(1), tasks.echo.bind(2)
    with transaction.atomic(), pytest.raises(ValueError, match="each other"):
        enqueue_many([first.wait_for(again), again])  # which is the first one
    with transaction.atomic(), pytest.raises(ValueError, match="each other"):
        enqueue_many([first.wait_for(other), other.wait_for(again), again])
    assert not Run.objects.exists()


def test_very_many_that_wait_are_settled_in_several_transactions() -> None:
    """A worker could not end a run that 300,000 others waited for: its statement took too long, again and again."""
    first = tasks.add.bind(1)
    enqueue_many([first, *(tasks.add.using(after=[first], queue_name="later").bind(n) for n in range(1200))])
    complete(claim()[0])
    assert Run.objects.filter(status=Status.QUEUED).count() == 500
    assert Unsettled.objects.count() == 1
    settle_all()
    assert Run.objects.filter(status=Status.QUEUED).count() == 1200


def test_one_that_waits_for_very_many_is_queued_with_the_last() -> None:
    many = [tasks.add.bind(n) for n in range(300)]
    last = tasks.add.using(after=many, queue_name="later").bind(0)
    enqueue_many([*many, last])
    for _ in range(3):
        assert status_of(last) == Status.BLOCKED
        for run in claim(100):
            complete(run)
    assert status_of(last) == Status.QUEUED


def test_what_was_cancelled_or_deleted_while_it_waited_keeps_its_prerequisite_from_nothing() -> None:
    first = tasks.add.bind(1)
    cancelled, deleted = tasks.add.using(after=[first]).bind(2), tasks.add.using(after=[first]).bind(3)
    enqueue_many([first, cancelled, deleted])
    cancel(cancelled)
    Run.objects.filter(pk=deleted.id).delete()
    complete(claim()[0])
    settle_all()
    assert not Dependency.objects.filter(settled_at=None).exists()
    assert status_of(cancelled) == Status.CANCELLED


# Deadlines


def test_a_run_that_was_not_begun_in_time_fails() -> None:
    late = tasks.add.using(expires=timedelta(microseconds=1)).enqueue(1)
    assert claim() == []
    with connection.cursor() as cursor:
        assert expire(cursor, limit=100) == [UUID(late.id)]
    run = Run.objects.get(pk=late.id)
    assert (run.status, run.reason) == (Status.FAILED, Reason.EXPIRED)


def test_one_that_was_begun_in_time_may_go_on_later() -> None:
    run = tasks.add.using(expires=timedelta(hours=1)).enqueue(1)
    Run.objects.filter(pk=run.id).update(attempts=1, expires_at=timezone.now())
    with connection.cursor() as cursor:
        assert expire(cursor, limit=100) == []
    assert len(claim()) == 1


# Many


def test_many_go_in_in_order_and_together() -> None:
    results = enqueue_many([tasks.add.bind(number) for number in range(12_000)])
    ids = [UUID(result.id) for result in results]
    assert ids == sorted(ids)
    assert [result.args for result in results] == [[number] for number in range(12_000)]
    assert Run.objects.count() == 12_000


def test_none_of_many_is_written_if_one_is_refused() -> None:
    tasks.add.using(key="k").enqueue(1)
    with transaction.atomic():
        with pytest.raises(Duplicate):
            enqueue_many([tasks.add.bind(1), tasks.add.using(key="k", on_duplicate="raise").bind(1)])
        with pytest.raises(TypeError, match="does not take"):
            enqueue_many([tasks.add.bind(1), tasks.add.bind()])
        assert enqueue_many([]) == []
    assert Run.objects.count() == 1


def test_the_same_bound_task_is_one_run() -> None:
    bound = tasks.add.bind(1)
    first, second = enqueue_many([bound]), enqueue_many([bound])
    assert (first[0].id, first[0].created) == (second[0].id, True)
    assert not second[0].created


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("key", ""),
        ("key", "x" * 64_001),
        ("key", 7),
        ("key_for", -1),
        ("on_duplicate", "ignore"),
        ("tags", "billing"),
        ("tags", [""]),
        ("actor", 7),
        ("on", "finish"),
        ("expires", 7),
        ("timeout", 0),
        ("backoff", 7),
        ("max_attempts", 2**31),
        ("priority", True),
        ("tags", ["x" * 501]),
        ("tags", ["a\0b"]),
        ("key", "a\0b"),
        ("key", "\ud83d"),
        ("queue_name", "x" * 101),
        ("queue_name", "mail\0"),
        ("run_after", timedelta(days=3_000_000)),
        ("run_after", timedelta.min),
        ("run_after", "tomorrow"),
        ("run_after", 60),
        ("priority", "high"),
        ("tags", 7),
        ("run_after", datetime(9999, 1, 1, tzinfo=UTC)),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(InvalidTask, match=option):
        tasks.add.using(**{option: value})


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "held_runs",
        "free_keys",
        "expire_runs",
        "lock_prerequisites",
        "lock_dependants",
        "leave_dependants",
        "take_unsettled",
        "settle_runs",
    ],
)
def test_no_statement_reads_a_whole_table(name: str, analyzed: bool) -> None:
    """Behind millions of finished runs, with statistics or without."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_run "
            "(id, trigger, script, args, kwargs, status, finished_at, expires_at, key, key_hash) "
            "SELECT gen_random_uuid(), 'enqueue', 'x', '[]', '{}', 'succeeded', now(), now(), 'k', n::text::bytea "
            "FROM generate_series(1, 20000) AS n"
        )
        cursor.execute(
            "INSERT INTO cronoq_dependency (run_id, prerequisite_id, condition, settled_at) "
            "SELECT gen_random_uuid(), id, 'success', CASE WHEN random() < 0.9 THEN now() END FROM cronoq_run"
        )
        cursor.execute("INSERT INTO cronoq_unsettled (run) SELECT run_id FROM cronoq_dependency LIMIT 10")
        if analyzed or name == "free_keys":  # which nobody waits for
            cursor.execute("ANALYZE cronoq_run, cronoq_dependency, cronoq_unsettled")
        ids = list(Run.objects.values_list("pk", flat=True)[:5])
        values = {"ids": ids, "prerequisites": ids, "hashes": [b"1"], "limit": 500, "now": None}
        if name == "free_keys":
            values["ids"] = None
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement(name)}", values)
        (plan,) = cursor.fetchone()
    read = [node["Relation Name"] for node in nodes(plan[0]["Plan"]) if node["Node Type"] == "Seq Scan"]
    assert not {"cronoq_run", "cronoq_dependency"} & set(read), plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.parametrize(
    "offset", [timedelta(hours=23), -timedelta(hours=23, minutes=59, seconds=59), timedelta(hours=5.75)]
)
def test_any_zone_and_any_kind_of_datetime_will_do(offset: timedelta) -> None:
    class Moment(datetime):
        """As libraries that freeze the time have them."""

    moment = Moment(2040, 1, 1, 12, 0, 0, 7, tzinfo=zone(offset))
    run = Run.objects.get(pk=tasks.add.using(run_after=moment, expires=moment).enqueue(1).id)
    assert (run.due_at, run.expires_at) == (moment, moment)
