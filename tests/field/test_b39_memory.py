"""Old runs were removed only when the queue was empty, and under steady load it never was.

There were 6.5 million rows in the end, and in a quiet moment one huge DELETE took the process past its memory limit.
Workers elsewhere kept what they had finished; or Django did for them, whose log of queries, with DEBUG on, grew.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psutil
import pytest
from django.db import connection
from django.db.models import Min
from django.utils import timezone

from cronoq_django import enqueue_many
from cronoq_django.models import Run, Worker
from cronoq_django.models.choices import Status
from tests import tasks
from tests.fault.conftest import Fleet
from tests.fault.runs import finished

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

IS_LONG = int(os.environ.get("CRONOQ_REPEATS", "1")) > 1
RUNS = 50_000 if IS_LONG else 2_000
MOST = (20 if IS_LONG else 4) << 20  # bytes that a process may grow by in the last four fifths
EXPIRED = 1_000_000 if IS_LONG else 10_000
BATCH = 1_000  # runs that are removed at once
LOAD = 120 if IS_LONG else 0  # seconds that work keeps coming after those are gone
RETENTION, INTERVAL = 30, 30  # seconds; the stage's own


@pytest.mark.parametrize("debug", ["true", "false"])
def test_b39_a_worker_does_not_grow(fleet: Fleet, wait_until: Callable[..., Any], debug: str) -> None:
    """A quarter of the tasks ask the database something on connections that are kept, with Django's log of queries."""
    worker = fleet.worker("--pool", "default=4", DEBUG=debug, CRONOQ_CONN_MAX_AGE="null")
    wait_until(lambda: Worker.objects.filter(status="online").exists())
    processes = [psutil.Process(pid) for pid in (worker.pid, Worker.objects.get().process_id)]

    def sizes_after(done: int) -> list[int]:
        wait_until(lambda: Run.objects.filter(status=Status.SUCCEEDED).count() >= done, seconds=600)
        return [process.memory_info().rss for process in processes]

    enqueue_many([tasks.add.bind(n) if n % 4 else tasks.count_pools.bind() for n in range(RUNS)])
    begin, fifth, end = sizes_after(1), sizes_after(RUNS // 5), sizes_after(RUNS)
    for name, *sizes in zip(("supervisor", "child"), begin, fifth, end, strict=True):
        print(f"{name}: " + ", ".join(f"{size / 2**20:.1f}" for size in sizes) + f" MB, {RUNS} runs, DEBUG={debug}")
    assert max(last - first for first, last in zip(fifth, end, strict=True)) < MOST
    noted = enqueue_many([tasks.queries_noted.bind() for _ in range(8)])
    wait_until(finished(*noted))
    assert max(Run.objects.filter(pk__in=[result.id for result in noted]).values_list("result", flat=True)) < 10


@contextmanager
def deletions() -> Iterator[Callable[[], dict[str, Any]]]:
    """Notes of each statement that deletes runs how many, how long it took, and when the last of them had ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE deletion (runs int, took float8, age float8); "
            "CREATE FUNCTION deletion() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN "
            "INSERT INTO deletion SELECT count(*), extract(epoch FROM clock_timestamp() - statement_timestamp()), "
            "extract(epoch FROM clock_timestamp() - max(coalesce(finished_at, 'infinity'))) "
            "FROM gone HAVING count(*) > 0; RETURN NULL; END $$; "
            "CREATE TRIGGER deletion AFTER DELETE ON cronoq_run REFERENCING OLD TABLE AS gone "
            "FOR EACH STATEMENT EXECUTE FUNCTION deletion()"
        )

    def noted() -> dict[str, Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*), sum(runs), max(runs), max(took), min(age) FROM deletion")
            return dict(zip(("statements", "runs", "most", "longest", "youngest"), cursor.fetchone(), strict=True))

    try:
        yield noted
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION deletion() CASCADE; DROP TABLE deletion")


def test_b39_old_runs_are_removed_while_work_keeps_coming(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """In batches, and only what is old enough. (Old runs that somebody still waits for are in test_b33_….)"""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, finished_at) "
            "SELECT gen_random_uuid(), 'enqueue', 'tests.tasks.old', '[]', '{}', 'succeeded', now() - interval '1 day' "
            "FROM generate_series(1, %s)",
            [EXPIRED],
        )
    old = Run.objects.filter(script="tests.tasks.old")
    recent = Run.objects.filter(script="tests.tasks.add", status=Status.SUCCEEDED)
    least, oldest = RUNS, timedelta()
    begun = time.monotonic()

    def goes_on() -> bool:
        """Keep work ready; whether all is done that is to be."""
        nonlocal least, oldest
        least = min(least, ready := Run.objects.filter(status=Status.QUEUED).count())
        if ready < 300:
            enqueue_many([tasks.add.bind(n) for n in range(500)])
        first = recent.aggregate(first=Min("finished_at"))["first"]
        oldest = max(oldest, timezone.now() - first) if first else oldest
        return not old.exists() and time.monotonic() > begun + LOAD

    enqueue_many([tasks.add.bind(n) for n in range(500)])
    with deletions() as noted:
        fleet.worker("--pool", "default=2")
        wait_until(lambda: goes_on() or recent.exists())
        fleet.leader(CRONOQ_RETENTION=json.dumps({"succeeded": RETENTION}))
        wait_until(goes_on, seconds=600)
        removed = noted()
    print(f"{removed}; ready: {least} or more; the oldest had ended {oldest} before")
    assert least > 0
    assert removed["runs"] >= EXPIRED
    assert removed["most"] <= BATCH
    assert removed["longest"] < 2
    assert removed["youngest"] >= RETENTION
    assert oldest < timedelta(seconds=RETENTION + 2 * INTERVAL)
