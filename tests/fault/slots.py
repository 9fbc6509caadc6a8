"""What the tests of leaders ask: who leads, what fired, and whether anything was written by one who led no more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from statistics import median

from django.db import connection
from django.db.models import Count

from cronoq_django.models import Coordinator, Job, JobState, Leader, LeaderTerm, Run, Stage
from cronoq_django.store.jobs import upsert_job

from .conftest import Fleet, Process

SECOND = timedelta(seconds=1)


def every_second(count: int = 3, name: str = "every-second") -> list[Job]:
    """Jobs due each second, their slots spread over it; nothing of theirs is ever skipped."""
    begun = clock()
    return [
        upsert_job(
            f"{name}-{n}",
            script="tests.tasks.add",
            args=[n],
            kind="every",
            every=SECOND,
            anchor=begun + SECOND * n / count,
            overlap="allow",
            misfire="all",
            misfire_limit=1000,
        )
        for n in range(count)
    ]


def clock() -> datetime:
    """The database's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def epoch() -> int:
    return Leader.objects.values_list("epoch", flat=True).first() or 0


def fired_since(moment: datetime) -> int:
    return Run.objects.filter(trigger="slot", created_at__gt=moment).count()


def assert_one_run_a_slot(jobs: list[Job]) -> None:
    """No slot twice, and none left out between a job's first and its last."""
    assert (
        not Run.objects.filter(trigger="slot")
        .values("job", "scheduled_for")
        .annotate(n=Count("pk"))
        .filter(n__gt=1)
        .exists()
    )
    for job in jobs:
        slots = list(
            Run.objects.filter(job=job, trigger="slot")
            .order_by("scheduled_for")
            .values_list("scheduled_for", flat=True)
        )
        assert len(slots) > 1
        assert {later - earlier for earlier, later in pairwise(slots)} == {SECOND}


def leader_of(fleet: Fleet) -> Process | None:
    """The process that the leader row names, if it is one of the fleet and lives."""
    pid = Coordinator.objects.filter(pk__in=Leader.objects.values("coordinator")).values_list("process_id", flat=True)
    return next((process for process in fleet.processes if process.is_alive and process.pid in pid), None)


def stands_by(process: Process, since: datetime) -> bool:
    """Whether it has said so after that moment."""
    return Coordinator.objects.filter(process_id=process.pid, status="standby", last_heartbeat_at__gt=since).exists()


def written_since(moment: datetime, term: int) -> list[str]:
    """What bears that epoch and was written after the moment."""
    written = {
        "runs": Run.objects.filter(epoch=term, created_at__gt=moment),
        "states": JobState.objects.filter(epoch=term, updated_at__gt=moment),
        "stages": Stage.objects.filter(epoch=term, last_run_at__gt=moment),
        "terms": LeaderTerm.objects.filter(epoch=term, from_at__gt=moment),
    }
    return [f"{rows.count()} {what} of epoch {term}" for what, rows in written.items() if rows.exists()]


@contextmanager
def late_writes() -> Iterator[Callable[[], list[tuple[str, int, int]]]]:
    """Lets the database keep what is committed with another epoch than the leader row's: (table, epoch, leader row's).

    Rows alone don't tell: a state or a stage that was written late is soon written again by who leads.
    """
    drop = "DROP FUNCTION IF EXISTS late_write() CASCADE; DROP TABLE IF EXISTS late_write"
    triggers = {
        "cronoq_run": "INSERT",
        "cronoq_job_state": "INSERT OR UPDATE",
        "cronoq_stage": "INSERT OR UPDATE",
        "cronoq_leader_term": "INSERT",
    }
    with connection.cursor() as cursor:
        cursor.execute(drop)
        cursor.execute("CREATE TABLE late_write (what text, epoch bigint, leader bigint)")
        cursor.execute(
            """
            CREATE FUNCTION late_write() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
            BEGIN
                INSERT INTO late_write
                SELECT TG_TABLE_NAME, NEW.epoch, epoch FROM cronoq_leader WHERE epoch IS DISTINCT FROM NEW.epoch;
                RETURN NULL;
            END $$
            """
        )
        for table, events in triggers.items():
            cursor.execute(
                f"CREATE TRIGGER late_write AFTER {events} ON {table} "
                "FOR EACH ROW WHEN (NEW.epoch IS NOT NULL) EXECUTE FUNCTION late_write()"
            )

    def kept() -> list[tuple[str, int, int]]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT what, epoch, leader FROM late_write")
            return cursor.fetchall()

    try:
        yield kept
    finally:
        with connection.cursor() as cursor:
            for table in triggers:  # one by one: a leader may be at work, and locks them in another order
                cursor.execute(f"DROP TRIGGER late_write ON {table}")
            cursor.execute(drop)


def figures(values: list[float]) -> str:
    """Seconds in short."""
    ordered = sorted(values)
    return (
        f"min {ordered[0]:.3f}, median {median(ordered):.3f}, p95 {p95(values):.3f}, max {ordered[-1]:.3f} s "
        f"of {len(ordered)}"
    )


def p95(values: list[float]) -> float:
    """By nearest rank."""
    return sorted(values)[ceil(0.95 * len(values)) - 1]
