"""Prune by hand: what is older than its retention goes, in batches; what anything still needs stays."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from cronoq_django.leader.stages.prune import Prune
from cronoq_django.models import Attempt, Dependency, JobRevision, Run, RunDetail, Worker
from cronoq_django.models.ids import uuid7
from cronoq_django.store import create_run, prune, upsert_job
from cronoq_django.store.retention import BATCH
from cronoq_django.store.session import connect, transaction

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
NOTHING = {"succeeded": 0, "failed": 0, "cancelled": 0, "skipped": 0, "history": 0}


def ended(status: str = "succeeded", *, days: float = 40, **columns: Any) -> UUID:
    """A run that ended so long ago."""
    id_ = create_run("tests.tasks.add", args=[1]).id
    reason = {"failed": "error", "cancelled": "requested", "skipped": "overlap"}.get(status, "")
    columns = {"status": status, "reason": reason, "finished_at": timezone.now() - days * DAY, **columns}
    Run.objects.filter(pk=id_).update(**columns)
    return id_


def many(count: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, finished_at) "
            "SELECT gen_random_uuid(), 'enqueue', 'x', '[]', '{}', 'succeeded', now() - interval '40 days' "
            "FROM generate_series(1, %s)",
            [count],
        )


def left() -> set[UUID]:
    return set(Run.objects.values_list("pk", flat=True))


def test_each_status_has_its_retention(settings: Any) -> None:
    settings.CRONOQ = {**settings.CRONOQ, "RETENTION": {"succeeded": DAY, "failed": 30 * DAY, "skipped": DAY}}
    young = {ended(days=0.9), ended("failed", days=29), ended("cancelled", days=6.9), create_run("x").id}
    for status, days in (("succeeded", 1.1), ("failed", 31), ("cancelled", 7.1), ("skipped", 1.1)):
        ended(status, days=days)
    assert prune() == {"succeeded": 1, "failed": 1, "cancelled": 1, "skipped": 1, "history": 0}
    assert left() == young
    assert prune() == NOTHING


def test_only_what_is_named_goes() -> None:
    failed, _ = ended("failed"), ended()
    assert prune(retention={"succeeded": 0}) == {"succeeded": 1, "history": 0}
    assert left() == {failed}
    assert prune(retention={}) == {"history": 0}


def test_what_belongs_to_a_run_goes_with_it() -> None:
    gone, stays = ended(), ended(days=1)
    for id_ in (gone, stays):
        Attempt.objects.create(
            run_id=id_, number=1, claim=1, started_at=timezone.now(), ended_at=timezone.now(), outcome="failed"
        )
        RunDetail.objects.create(run_id=id_, message="half")
        Dependency.objects.create(run_id=id_, prerequisite_id=uuid7(), condition="any", settled_at=timezone.now())
    assert prune()["succeeded"] == 1
    for model in (Attempt, RunDetail, Dependency):
        assert {row.run_id for row in model.objects.all()} == {stays}


def test_what_is_needed_stays() -> None:
    """The prerequisite of a waiting run was removed, and the run was skipped for a success that nobody could see."""
    keeper = ended(key="k", key_hash=b"k" * 32, key_held=True, key_until=timezone.now() + DAY)
    needed, waiting = ended(), create_run("x").id
    Dependency.objects.create(run_id=waiting, prerequisite_id=needed, condition="success")
    assert prune() == NOTHING
    assert left() == {keeper, needed, waiting}
    Dependency.objects.update(settled_at=timezone.now())
    Run.objects.filter(pk=keeper).update(key_held=False)
    assert prune()["succeeded"] == 2


def test_a_held_row_is_passed_over() -> None:
    held, _ = ended(), ended()
    with closing(connect("default", name="console")) as console, transaction(console) as cursor:
        cursor.execute("SELECT FROM cronoq_run WHERE id = %s FOR UPDATE", (held,))
        assert prune()["succeeded"] == 1
        assert left() == {held}
    assert prune()["succeeded"] == 1


def test_it_goes_on_in_batches_up_to_the_limit() -> None:
    many(2 * BATCH + 300)
    assert prune(limit=0) == NOTHING
    assert prune(limit=BATCH + 100)["succeeded"] == BATCH + 100
    assert Run.objects.count() == BATCH + 200
    assert prune()["succeeded"] == BATCH + 200


def test_several_at_once_remove_each_run_once() -> None:
    many(3 * BATCH)
    with ThreadPoolExecutor(3) as threads:
        removed = sum(done["succeeded"] for done in threads.map(lambda _: prune(), range(3)))
    # What one had locked just then, the others passed over, and may have been done by that.
    removed += prune()["succeeded"]
    assert (removed, Run.objects.count()) == (3 * BATCH, 0)


def test_the_leaders_own_prune_goes_on_beside_it(leading: Any) -> None:
    many(3 * BATCH)
    duty, steps = Prune(), 0
    with ThreadPoolExecutor(1) as threads:
        by_hand = threads.submit(prune)
        while not by_hand.done() or Run.objects.exists():
            with leading.transaction() as tx:
                steps += 1
                duty.step(tx)
            duty._walked.clear()  # as once an hour: what was passed over is looked at again
    assert by_hand.result()["succeeded"] <= 3 * BATCH
    assert steps


def test_old_history_goes() -> None:
    job = upsert_job("nightly", script="tests.tasks.add", args=[1], kind="manual")
    for number in range(101):
        upsert_job("nightly", description=f"change {number}")
    Worker.objects.create(name="old", host="h", process_id=1, version="", concurrency=1, status="stopped")
    Worker.objects.update(last_heartbeat_at=timezone.now() - 31 * DAY)
    assert prune()["history"] == 3
    numbers = JobRevision.objects.filter(job=job.pk).order_by("number").values_list("number", flat=True)
    assert list(numbers) == list(range(3, 103))
    assert not Worker.objects.exists()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        ended()
    call_command("cronoq_prune", limit=1)
    assert capsys.readouterr().out == "Removed 1 succeeded, 0 failed, 0 cancelled, 0 skipped, 0 history\n"
    call_command("cronoq_prune", "--json")
    assert json.loads(capsys.readouterr().out) == {**NOTHING, "succeeded": 2}
    with pytest.raises(CommandError, match="whole number"):
        call_command("cronoq_prune", "--limit", "-1")
