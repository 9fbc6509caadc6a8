"""Leaders beside people: stopped in order, jobs edited under them, tables changed under them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from cronoq_django.models import Coordinator, Job, JobState, LeaderTerm, Run
from cronoq_django.store.jobs import upsert_job
from cronoq_django.store.session import connect, transaction

from .conftest import Fleet
from .slots import SECOND, assert_one_run_a_slot, epoch, every_second, fired_since

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


def test_a_stopped_leader_resigns_and_the_standby_leads_at_once(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    first = fleet.leader()
    wait_until(lambda: epoch() == 1)
    fleet.leader()
    wait_until(lambda: Coordinator.objects.filter(status="standby").exists())
    assert first.stop() == 0
    wait_until(lambda: epoch() == 2, seconds=2)
    assert "resigned" in LeaderTerm.objects.get(epoch=1).ended


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
    wait_until(lambda: fired_since(mended_at) >= 2)
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
