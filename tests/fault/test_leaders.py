"""Leaders are killed and replaced; the rows tell whether anything fired twice, or not at all."""

import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.db.models import Count
from django.utils import timezone

from cronoq_django.models import Coordinator, Job, JobState, Leader, LeaderTerm, Run
from cronoq_django.store.jobs import upsert_job
from cronoq_django.store.session import connect, transaction

from .conftest import Fleet

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

SECOND = timedelta(seconds=1)


def every_second(count: int = 3) -> list[Job]:
    return [
        upsert_job(
            f"every-second-{n}",
            script="tests.tasks.add",
            args=[n],
            kind="every",
            every=SECOND,
            overlap="allow",
            misfire="all",
        )
        for n in range(count)
    ]


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


def test_a_killed_leader_is_replaced_and_no_slot_is_doubled_or_lost(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    jobs = every_second()
    first = fleet.leader()
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    second = fleet.leader()
    wait_until(lambda: Coordinator.objects.filter(status="standby").exists())
    before = epoch()
    first.kill()
    killed_at = timezone.now()
    wait_until(lambda: epoch() == before + 1, what="the standby takes over")
    wait_until(lambda: fired_since(killed_at) >= 6)
    assert epoch() == before + 1
    assert second.stop() == 0
    assert_one_run_a_slot(jobs)
    assert [term.epoch for term in LeaderTerm.objects.order_by("epoch")] == [before, before + 1]
    assert "replaced" in LeaderTerm.objects.get(epoch=before).ended
    assert set(Run.objects.values_list("epoch", flat=True)) == {before, before + 1}


def test_a_stopped_leader_resigns_and_the_standby_leads_at_once(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    first = fleet.leader()
    wait_until(lambda: epoch() == 1)
    fleet.leader()
    wait_until(lambda: Coordinator.objects.filter(status="standby").exists())
    assert first.stop() == 0
    wait_until(lambda: epoch() == 2, seconds=2)
    assert "resigned" in LeaderTerm.objects.get(epoch=1).ended


def test_a_leader_whose_session_is_cut_leads_again_in_a_new_term(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    jobs = every_second(1)
    leader = fleet.leader()
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(backend_pid) FROM cronoq_leader")
    cut_at = timezone.now()
    wait_until(lambda: epoch() == 2)
    wait_until(lambda: fired_since(cut_at) >= 3)
    assert leader.is_alive
    assert "Stepping down" in leader.output
    leader.stop()
    assert_one_run_a_slot(jobs)


def test_a_frozen_leader_is_replaced_and_writes_nothing_when_it_wakes(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    """A paused process kept its session and its lock for ever, and nobody led."""
    jobs = every_second(1)
    first = fleet.leader()
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    second = fleet.leader()
    wait_until(lambda: Coordinator.objects.filter(status="standby").exists())
    first.signal(signal.SIGSTOP)
    wait_until(lambda: epoch() == 2, seconds=3 + 3, what="replaced within about the TTL")
    first.signal(signal.SIGCONT)
    wait_until(lambda: "Stepping down" in first.output)
    wait_until(lambda: Run.objects.filter(epoch=2).count() >= 3)
    assert epoch() == 2
    first_of_second_term = Run.objects.filter(epoch=2).order_by("id").first()
    assert first_of_second_term is not None
    assert not Run.objects.filter(epoch=1, created_at__gt=first_of_second_term.created_at).exists()
    second.stop()
    first.stop()
    assert_one_run_a_slot(jobs)


def test_an_edit_is_in_force_at_once_and_without_a_restart(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    job = upsert_job("edited", script="tests.tasks.add", args=[1], kind="cron", cron="0 0 1 1 *")
    fleet.leader()
    wait_until(lambda: JobState.objects.filter(job=job, planned_revision=1).exists())
    Job.objects.filter(pk=job.pk).update(kind="every", every=SECOND)
    wait_until(lambda: Run.objects.filter(job=job).exists(), seconds=3)


def test_an_edit_left_open_stops_neither_the_firing_nor_the_leading(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    """Somebody began an edit in a console and went to lunch; the job was due, and due, and due."""
    jobs = every_second(1)
    leader = fleet.leader(CRONOQ_LEADER_TTL="2")
    wait_until(lambda: Run.objects.filter(trigger="slot").exists())
    editor = connect("default", name="editor")
    with transaction(editor) as cursor:
        cursor.execute("UPDATE cronoq_job SET description = 'being edited'")  # the code's jobs too
        for table in ("cronoq_stage", "cronoq_coordinator", "cronoq_script", "cronoq_pool", "cronoq_leader_term"):
            cursor.execute(f"SELECT FROM {table} FOR UPDATE")
        begun = timezone.now()
        wait_until(lambda: fired_since(begun) >= 4)
        stale = Job.objects.get(pk=jobs[0].pk)
    stale.save()  # as it was before the edit was committed
    editor.close()
    wait_until(lambda: fired_since(timezone.now() - SECOND * 2) >= 1)
    assert epoch() == 1
    leader.stop()
    assert_one_run_a_slot(jobs)


def test_tables_that_a_deploy_changes_under_it_do_not_end_a_leader(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    """A column was renamed for two seconds. The leader died of it, and could not even be stopped."""
    every_second(1)
    leader = fleet.leader("--pool", "default=1")
    wait_until(lambda: Run.objects.filter(trigger="slot", status="succeeded").exists())
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_job_state RENAME COLUMN explanation TO renamed")
        cursor.execute("ALTER TABLE cronoq_leader RENAME COLUMN renewed_at TO renamed")
    wait_until(lambda: "UndefinedColumn" in leader.output)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_job_state RENAME COLUMN renamed TO explanation")
        cursor.execute("ALTER TABLE cronoq_leader RENAME COLUMN renamed TO renewed_at")
    mended_at = timezone.now()
    wait_until(lambda: fired_since(mended_at) >= 2, seconds=15)
    assert leader.stop() == 0


def test_leader_and_worker_refuse_a_database_without_our_tables(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_migrations SET app = 'hidden' WHERE app = 'cronoq'")
    try:
        for process in (fleet.leader(), fleet.worker()):
            assert process.wait() == 1
            assert "python manage.py migrate" in process.output
            assert "Traceback" not in process.output
    finally:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE django_migrations SET app = 'cronoq' WHERE app = 'hidden'")
