"""Runs in pages: nothing twice, nothing left out, and what is said to be cheap is."""

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cronoq_django.models import Run
from cronoq_django.models.choices import OPEN, TERMINAL, Status, Trigger
from cronoq_django.models.ids import uuid7
from cronoq_django.store import create_run, list_runs_filtered, list_runs_for_job
from cronoq_django.store.records import TaskRecord
from cronoq_django.store.submit import key_hash

pytestmark = pytest.mark.django_db

START = datetime(2026, 1, 1, tzinfo=UTC)
JOBS = (uuid7(), uuid7())
MANY = 200_000


def pages(size: int, between: Callable[[], Any] = lambda: None, **filters: Any) -> list[TaskRecord]:
    """All pages, one after the other."""
    found: list[TaskRecord] = []
    while page := list_runs_filtered(limit=size, before=found[-1] if found else None, **filters):
        assert len(page) <= size
        found += page
        between()
    return found


def fill() -> list[Run]:
    """One run of every combination."""
    tags: tuple[Any, ...] = (None, ["billing"], ["billing", "vip"])
    made = []
    for number, (status, pool, tag, job) in enumerate(
        itertools.product(Status, ("default", "mail"), tags, (None, *JOBS))
    ):
        ended = START + timedelta(hours=number) if status in TERMINAL else None
        owned = (
            {"claim": number + 1, "worker_id": JOBS[0], "lease_expires_at": START} if status == Status.RUNNING else {}
        )
        reason = {Status.FAILED: "error", Status.CANCELLED: "requested", Status.SKIPPED: "overlap"}.get(status, "")
        made.append(
            Run(
                trigger=Trigger.MANUAL if job else Trigger.ENQUEUE,
                script=f"tests.tasks.{'add' if number % 3 else 'echo'}",
                status=status,
                reason=reason,
                pool=pool,
                tags=tag,
                job_id=job,
                key=f"k{number % 7}",
                key_hash=key_hash(f"k{number % 7}"),
                created_at=START + timedelta(minutes=number),
                finished_at=ended,
                **owned,
            )
        )
    return Run.objects.bulk_create(made)


FILTERS: list[tuple[dict[str, Any], Callable[[Run], bool]]] = [
    ({}, lambda run: True),
    ({"status": "failed"}, lambda run: run.status == "failed"),
    ({"status": list(OPEN)}, lambda run: run.status in OPEN),
    ({"tags": []}, lambda run: True),
    ({"pool": "mail"}, lambda run: run.pool == "mail"),
    ({"script": "tests.tasks.echo"}, lambda run: run.script == "tests.tasks.echo"),
    ({"tags": ["vip"]}, lambda run: "vip" in (run.tags or [])),
    ({"tags": ("vip", "billing")}, lambda run: {"vip", "billing"} <= set(run.tags or [])),
    ({"job": JOBS[1]}, lambda run: run.job_id == JOBS[1]),
    ({"trigger": "manual"}, lambda run: run.trigger == "manual"),
    ({"key": "k3"}, lambda run: run.key == "k3"),
    ({"created_since": START + timedelta(minutes=50)}, lambda run: run.created_at >= START + timedelta(minutes=50)),
    ({"created_before": START + timedelta(minutes=50)}, lambda run: run.created_at < START + timedelta(minutes=50)),
    (
        {"finished_since": START + timedelta(hours=80), "finished_before": START + timedelta(hours=100)},
        lambda run: run.finished_at is not None and 80 <= (run.finished_at - START) // timedelta(hours=1) < 100,
    ),
    (
        {"status": ["succeeded", "failed"], "pool": "mail", "job": JOBS[0], "tags": ["billing"]},
        lambda run: (
            run.status in ("succeeded", "failed")
            and (run.pool, run.job_id) == ("mail", JOBS[0])
            and run.tags is not None
        ),
    ),
]


@pytest.mark.parametrize(("filters", "meets"), FILTERS, ids=[" ".join(one) or "all" for one, _ in FILTERS])
def test_a_filter_gives_what_it_says_in_pages(filters: dict[str, Any], meets: Callable[[Run], bool]) -> None:
    wanted = [run.pk for run in reversed(fill()) if meets(run)]
    assert wanted
    for size in (7, 1000):
        assert [one.id for one in pages(size, **filters)] == wanted


def test_runs_that_are_added_or_removed_between_pages_move_none() -> None:
    """With offsets, each new run moved a row of the first page to the second one, and it was listed twice."""
    there = [run.pk for run in reversed(fill())]
    gone = iter(there[40::10])

    def between() -> None:
        create_run("tests.tasks.add", args=[1])
        Run.objects.filter(pk=next(gone, None)).delete()

    found = [one.id for one in pages(10, between)]
    assert found == [one for one in there if one in found]
    assert set(there) - set(found) <= set(there[40::10])


def test_the_runs_of_a_job() -> None:
    of_job = [run.pk for run in reversed(fill()) if run.job_id == JOBS[0]]
    first = list_runs_for_job(JOBS[0], limit=5)
    assert [one.id for one in first + list_runs_for_job(JOBS[0], before=first[-1])] == of_job
    assert list_runs_for_job(uuid7()) == []


def pages_read(**filters: Any) -> int:
    """How many pages of 8 kB PostgreSQL looks at for the list."""
    with CaptureQueriesContext(connection) as asked:
        list_runs_filtered(**filters)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {asked[0]['sql']}")
        plan = cursor.fetchone()[0]
    top = (plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def test_what_is_said_to_be_cheap_is_so_behind_many_finished_runs() -> None:
    with connection.cursor() as cursor:
        insert = (
            "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, finished_at, key_hash, tags) "
            "SELECT gen_random_uuid(), 'enqueue', 'x', '[]', '{}', "
        )
        ended = "'succeeded', clock_timestamp() - n * interval '1 minute', NULL, NULL FROM generate_series(1, %s) AS n"
        cursor.execute(insert + ended, [MANY])
        waiting = "%s, NULL, sha256(convert_to('k' || n, 'UTF8')), ARRAY['t' || n] FROM generate_series(1, 20) AS n"
        for status in ("queued", "scheduled"):
            cursor.execute(insert + waiting, [status])
        cursor.execute("ANALYZE cronoq_run")
        cursor.execute("SELECT pg_relation_size('cronoq_run') / 8192")
        whole = cursor.fetchone()[0]
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    read = {
        name: pages_read(**filters)
        for name, filters in {
            "nothing": {},
            "key": {"key": "k7"},
            "tags": {"tags": ["t7"]},
            "queued": {"status": "queued"},
            "waiting": {"status": ["queued", "scheduled", "blocked"]},
            "finished since": {"finished_since": hour_ago},
            "finished since, of a pool": {"finished_since": hour_ago, "pool": "mail", "status": "failed"},
        }.items()
    }
    assert whole > 2_000
    assert all(pages < 400 for pages in read.values()), read


def test_a_record_is_the_whole_row() -> None:
    id_: UUID = create_run("tests.tasks.add", args=[1], tags=["a", "b"], key="k", due_at=START).id
    (listed,) = list_runs_filtered()
    assert (listed.id, listed.tags, listed.key, listed.due_at) == (id_, ("a", "b"), "k", 1_767_225_600_000_000_000)
