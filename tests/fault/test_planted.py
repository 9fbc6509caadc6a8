"""Rows that SQL put there and nobody can work with, and stages that fail: their trouble is theirs alone, and shows."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from cronoq_django.models import Attempt, Job, JobState, Leader, LeaderTerm, Run, Stage, Stat
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.store.jobs import upsert_job
from tests import tasks

from .conftest import Fleet
from .slots import SECOND, assert_one_run_a_slot, clock, epoch, every_second, fired_since

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

WITHDRAWN = "US/Pacific-New"
SECONDLY = "* * * * * *"


def test_planted_rows_show_their_reason_and_the_rest_recovers_at_once(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    """One row of another release's, or of a script's, and the scheduler crashed at it, at every start."""
    bad = {
        plant_job("zone", timezone=WITHDRAWN): f"timezone.*{WITHDRAWN}",
        plant_job("args", args='{"a": 1}'): "args.*list",
        plant_job("kwargs", kwargs="[1]"): "kwargs.*object",
        plant_job("script", script="tests.tasks.gone"): r"script.*tests\.tasks\.gone",
    }
    plant_run = (
        "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status) "
        "VALUES (gen_random_uuid(), 'enqueue', 'tests.tasks.add', %s, '{}', 'queued') RETURNING id"
    )
    with connection.cursor() as cursor:
        cursor.execute(plant_run, ['{"a": 1}'])
        bad_run = cursor.fetchone()[0]
    jobs = every_second(30)
    results = [tasks.add.enqueue(n) for n in range(30)]
    fleet.leader()
    wait_until(lambda: Run.objects.filter(job__in=jobs).values("job").distinct().count() == 30)
    term = LeaderTerm.objects.get()
    for job in jobs:
        first = Run.objects.filter(job=job).earliest("created_at")
        assert first.created_at - term.from_at < 10 * SECOND
    wait_until(lambda: Run.objects.get(pk=bad_run).finished_at, what="the leader ends the run, without any worker")
    run = Run.objects.get(pk=bad_run)
    assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.QUARANTINED, 0)
    assert "JSON list" in run.error
    errors = dict(JobState.objects.values_list("job__name", "error"))
    for name, reason in bad.items():
        assert re.search(reason, errors[name]), errors[name]
    assert {name for name, error in errors.items() if error} == set(bad)
    assert not Run.objects.filter(job_name__in=bad).exists()
    fleet.worker()
    ids = [result.id for result in results]
    wait_until(lambda: Run.objects.filter(pk__in=ids, status="succeeded").count() == 30)
    assert epoch() == 1
    assert_one_run_a_slot(jobs)


def test_a_zone_that_is_spoilt_under_the_leader_stops_its_job_alone_until_it_is_mended(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    """A zone was withdrawn from the tz database: the job failed each second, and with it all that were due."""
    good = every_second(49)
    spoilt = upsert_job("spoilt", script="tests.tasks.add", args=[1], kind="cron", cron=SECONDLY, overlap="allow")
    leader = fleet.leader()
    wait_until(lambda: Run.objects.filter(job__in=[*good, spoilt]).values("job").distinct().count() == 50)
    set_zone(spoilt, WITHDRAWN)
    wait_until(lambda: JobState.objects.get(job=spoilt).error, what="it is set aside")
    assert WITHDRAWN in JobState.objects.get(job=spoilt).error
    spoilt_at = clock()
    wait_until(lambda: Run.objects.filter(job=good[0], scheduled_for__gt=spoilt_at).count() >= 5)
    assert not Run.objects.filter(job=spoilt, created_at__gt=spoilt_at).exists()
    assert len(re.findall("Job spoilt", leader.output)) == 1
    mended_at = clock()
    set_zone(spoilt, "America/Los_Angeles")
    wait_until(lambda: Run.objects.filter(job=spoilt, created_at__gt=mended_at).exists(), seconds=5)
    first = Run.objects.filter(job=spoilt, created_at__gt=mended_at).earliest("scheduled_for")
    assert mended_at < first.scheduled_for < mended_at + 2 * SECOND
    assert JobState.objects.get(job=spoilt).error == ""
    assert len(re.findall("Job spoilt", leader.output)) == 1
    assert "Traceback" not in leader.output
    assert epoch() == 1
    assert_one_run_a_slot(good)


def test_stages_that_fail_leave_the_others_running_and_say_why(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """`prune` misses a column that only it looks at, and `rescue` meets a row that an odd trigger refuses."""
    jobs = every_second()
    (refused,) = lose_runs(1)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_stat (minute, pool, script, run_time, wait) "
            "VALUES (now() - interval '60 days', 'default', 'x', '1 s', '1 s')"
        )
        cursor.execute("ALTER TABLE cronoq_stat RENAME COLUMN minute TO renamed")
    try:
        with trigger_on_reclaim(f"IF NEW.id = '{refused}' THEN RAISE division_by_zero; END IF"):
            leader = fleet.leader()
            wait_until(lambda: errors_of_stages().keys() >= {"prune", "rescue"})
            failed_at = clock()
            wait_until(lambda: fired_since(failed_at) >= 9)
            errors = errors_of_stages()
            assert errors.keys() == {"prune", "rescue"}
            assert "UndefinedColumn" in errors["prune"]
            assert "DivisionByZero" in errors["rescue"]
            assert Run.objects.get(pk=refused).status == Status.RUNNING
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE cronoq_stat RENAME COLUMN renamed TO minute")
    wait_until(lambda: Run.objects.get(pk=refused).status == Status.QUEUED, what="the run is taken back")
    wait_until(lambda: not Stat.objects.exists(), what="what is old is removed")
    wait_until(lambda: not errors_of_stages(), what="both stages work again")
    assert epoch() == 1
    assert leader.is_alive
    assert_one_run_a_slot(jobs)


@pytest.mark.parametrize(
    ("trouble", "epochs"),
    [
        ("RAISE EXCEPTION 'the planted weather' USING ERRCODE = '57P01'", 1),
        ("PERFORM pg_terminate_backend(pg_backend_pid())", 2),
    ],
    ids=["weather", "cut"],
)
def test_fifty_lost_runs_are_all_taken_back_although_the_tenth_fails_once(
    fleet: Fleet, wait_until: Callable[..., Any], trouble: str, epochs: int
) -> None:
    runs = lose_runs(50)
    # A sequence counts also what is rolled back.
    once = f"IF NEW.id = '{sorted(runs)[9]}' AND nextval('planted') = 1 THEN {trouble}; END IF"
    with trigger_on_reclaim(once):
        leader = fleet.leader()
        wait_until(lambda: not Run.objects.filter(pk__in=runs, status="running").exists())
        with connection.cursor() as cursor:
            cursor.execute("SELECT last_value FROM planted")
            assert cursor.fetchone()[0] == 2  # the sweep after
    assert Run.objects.filter(pk__in=runs, status="queued", attempts=1, claim=None).count() == 50
    assert Attempt.objects.filter(run_id__in=runs, outcome=Outcome.LOST).count() == 50
    assert epoch() == epochs
    assert ("put off: the planted weather" if epochs == 1 else "Stepping down") in leader.output


def test_ninety_days_of_missed_minutes_do_not_cost_the_leadership(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """After a long outage the leader counted so long that its session was ended, again and again."""
    policies = ["skip", "latest", "all", "all"]
    missed = {
        "script": "tests.tasks.add",
        "kind": "cron",
        "cron": "* * * * *",
        "overlap": "allow",
        "misfire_limit": 1000,
    }
    jobs = [upsert_job(f"missed-{n}", args=[n], misfire=policies[n % 4], **missed) for n in range(20)]
    zones = ["UTC", "Europe/Warsaw", "America/New_York", "Asia/Tokyo"]
    missed_since = timezone.now() - timedelta(days=90)
    with connection.cursor() as cursor:
        for n, job in enumerate(jobs):
            cursor.execute("UPDATE cronoq_job SET timezone = %s WHERE id = %s", [zones[n // 5], job.pk])
        cursor.execute("DELETE FROM cronoq_job_change")  # as planned
        cursor.execute(
            "INSERT INTO cronoq_job_state (job_id, partition, planned_revision, next_run_at, epoch) "
            "SELECT id, 0, schedule_revision, date_trunc('minute', %s), 0 FROM cronoq_job",
            [missed_since],
        )
    fleet.leader()
    silences = [timedelta()]

    def is_done() -> bool:
        silences.extend(clock() - at for at in Leader.objects.values_list("renewed_at", flat=True))
        return not JobState.objects.filter(job__in=jobs, next_run_at__lt=clock() - 2 * SECOND).exists()

    wait_until(is_done, what="all have fired what they had missed")
    assert epoch() == 1
    assert max(silences) < 10 * SECOND
    assert JobState.objects.filter(job__in=jobs, error="", missed_count=10_000).count() == 20
    fired = Run.objects.filter(trigger="slot", status="queued")
    for job in jobs:
        least, most = {"skip": (0, 2), "latest": (1, 3), "all": (1000, 1003)}[job.misfire]
        assert least <= fired.filter(job=job).count() <= most
    print(f"The longest silence of the leader: {max(silences)}")


def plant_job(name: str, **columns: str) -> str:
    """A job by SQL, past every check of ours."""
    values = {
        "name": name,
        "script": "tests.tasks.add",
        "args": "[1]",
        "kwargs": "{}",
        "kind": "cron",
        "cron": SECONDLY,
        **columns,
    }
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO cronoq_job ({', '.join(values)}) VALUES ({', '.join(['%s'] * len(values))})",
            [*values.values()],
        )
    return name


def set_zone(job: Job, zone: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cronoq_job SET timezone = %s WHERE id = %s", [zone, job.pk])


def lose_runs(count: int) -> list[str]:
    """Running runs whose leases ran out; their ids."""
    add = (
        "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, worker_id, claim, lease_expires_at, "
        "started_at) SELECT gen_random_uuid(), 'enqueue', 'tests.tasks.add', '[]', '{}', 'running', gen_random_uuid(), "
        "nextval('cronoq_claim'), now() - interval '1 h', now() FROM generate_series(1, %s) RETURNING id"
    )
    with connection.cursor() as cursor:
        cursor.execute(add, [count])
        return [str(row[0]) for row in cursor.fetchall()]


def errors_of_stages() -> dict[str, str]:
    return dict(Stage.objects.exclude(error="").values_list("name", "error"))


@contextmanager
def trigger_on_reclaim(body: str) -> Iterator[None]:
    """PL/pgSQL at each run that stops running, with a sequence `planted` at hand."""
    with connection.cursor() as cursor:
        cursor.execute("DROP SEQUENCE IF EXISTS planted; CREATE SEQUENCE planted")
        cursor.execute(
            "CREATE OR REPLACE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
            f"$$ BEGIN {body}; RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER planted BEFORE UPDATE ON cronoq_run FOR EACH ROW "
            "WHEN (OLD.status = 'running' AND NEW.status <> 'running') EXECUTE FUNCTION planted()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION planted() CASCADE; DROP SEQUENCE planted")
