"""What the database guards by itself, whatever writes the rows: save(), update(), bulk_update(), raw SQL."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from cronoq_django.models import Job, JobChange, JobRevision, JobState, Run
from cronoq_django.store.jobs import acting

pytestmark = pytest.mark.django_db


def make_job(name: str = "nightly", **columns: Any) -> Job:
    columns = {"script": "tests.tasks.add", "args": [1], "kind": "cron", "cron": "0 3 * * *", **columns}
    return Job.objects.create(name=name, **columns)


def make_state(job: Job, **columns: Any) -> JobState:
    return JobState.objects.create(job=job, partition=1, epoch=1, **{"planned_revision": 1, **columns})


def forget_changes() -> None:
    JobChange.objects.all().delete()


def by_save(job: Job, **columns: Any) -> None:
    for name, value in columns.items():
        setattr(job, name, value)
    job.save()


def by_update(job: Job, **columns: Any) -> None:
    Job.objects.filter(pk=job.pk).update(**columns)


def by_bulk_update(job: Job, **columns: Any) -> None:
    for name, value in columns.items():
        setattr(job, name, value)
    Job.objects.bulk_update([job], list(columns))


def by_sql(job: Job, **columns: Any) -> None:
    with connection.cursor() as cursor:
        assignments = ", ".join(f"{name} = %s" for name in columns)
        cursor.execute(f"UPDATE cronoq_job SET {assignments} WHERE id = %s", [*columns.values(), job.pk])


every_way = pytest.mark.parametrize("write", [by_save, by_update, by_bulk_update, by_sql])


def test_a_new_job_is_revision_one_and_waits_to_be_planned() -> None:
    job = make_job()
    job.refresh_from_db()
    assert (job.revision, job.schedule_revision) == (1, 1)
    revision = JobRevision.objects.get(job=job)
    assert revision.snapshot["cron"] == "0 3 * * *"
    assert revision.changed_by.startswith("database:")
    assert list(JobChange.objects.values_list("job", flat=True)) == [job.pk]


def test_a_job_inserted_by_sql_needs_a_name_a_script_and_its_arguments_only() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_job (name, script, args, kwargs, kind) VALUES ('sql', 'x', '[]', '{}', 'manual') "
            "RETURNING id"
        )
        (pk,) = cursor.fetchone()
    job = Job.objects.get(name="sql")
    assert job.pk == pk
    assert (job.revision, job.pool, job.overlap, job.max_attempts) == (1, "default", "skip", 3)


@every_way
def test_a_changed_schedule_is_a_revision_and_a_change(write: Any) -> None:
    job = make_job()
    before = Job.objects.get(pk=job.pk)
    forget_changes()
    write(before, cron="0 5 * * *")
    after = Job.objects.get(pk=job.pk)
    assert (after.revision, after.schedule_revision) == (2, 2)
    assert after.schedule_changed_at > job.schedule_changed_at if job.schedule_changed_at else True
    assert JobRevision.objects.filter(job=job, number=2).get().snapshot["cron"] == "0 5 * * *"
    assert JobChange.objects.count() == 1


@every_way
def test_pausing_counts_as_a_changed_schedule(write: Any) -> None:
    job = make_job()
    forget_changes()
    write(Job.objects.get(pk=job.pk), enabled=False)
    assert Job.objects.get(pk=job.pk).schedule_revision == 2
    assert JobChange.objects.count() == 1


@every_way
def test_a_changed_description_is_a_revision_but_no_change_of_schedule(write: Any) -> None:
    job = make_job()
    forget_changes()
    write(Job.objects.get(pk=job.pk), description="what it is for")
    after = Job.objects.get(pk=job.pk)
    assert (after.revision, after.schedule_revision) == (2, 1)
    assert not JobChange.objects.exists()


@every_way
def test_writing_what_is_there_already_changes_nothing(write: Any) -> None:
    job = make_job()
    forget_changes()
    write(Job.objects.get(pk=job.pk), cron="0 3 * * *", name="nightly")
    assert Job.objects.get(pk=job.pk).revision == 1
    assert JobRevision.objects.count() == 1
    assert not JobChange.objects.exists()


def test_changed_arguments_are_noticed_though_json_has_no_equality() -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(args=[2], backoff={"first": 1})
    assert Job.objects.get(pk=job.pk).revision == 2


def test_a_stale_save_rewinds_neither_the_counters_nor_the_state() -> None:
    """Two people had the job open; the second one's save() wrote back the planned slot, and the job fired twice."""
    job = make_job()
    stale = Job.objects.get(pk=job.pk)
    Job.objects.filter(pk=job.pk).update(cron="0 4 * * *")
    slot = timezone.now() + timedelta(hours=1)
    make_state(job, next_run_at=slot, planned_revision=2)
    stale.description = "edited in a form that was open for an hour"
    stale.save()
    after = Job.objects.get(pk=job.pk)
    assert (after.revision, after.schedule_revision) == (3, 3)  # counted on, never back; the old cron is a new change
    assert JobState.objects.get(job=job).next_run_at == slot


def test_the_counters_cannot_be_set() -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(revision=77, schedule_revision=78)
    after = Job.objects.get(pk=job.pk)
    assert (after.revision, after.schedule_revision) == (1, 1)


def test_a_revision_names_the_actor() -> None:
    with acting("ada"):
        job = make_job()
    assert JobRevision.objects.get(job=job).changed_by == "ada"
    Job.objects.filter(pk=job.pk).update(enabled=False)
    assert JobRevision.objects.get(job=job, number=2).changed_by.startswith("database:")


def test_a_deleted_job_takes_its_state_and_revisions_along_and_leaves_a_change() -> None:
    job = make_job()
    make_state(job)
    forget_changes()
    pk = job.pk
    job.delete()
    assert not JobState.objects.exists()
    assert not JobRevision.objects.exists()
    assert list(JobChange.objects.values_list("job", flat=True)) == [pk]


def test_a_rolled_back_edit_leaves_no_trace() -> None:
    job = make_job()
    forget_changes()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(enabled=False)
        raise ZeroDivisionError
    assert not JobChange.objects.exists()
    assert JobRevision.objects.count() == 1


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"kind": "weekly"}, "cronoq_job_kind"),
        ({"kind": "cron", "cron": ""}, "cronoq_job_schedule"),
        ({"kind": "every", "every": None}, "cronoq_job_schedule"),
        ({"kind": "every", "every": timedelta(milliseconds=10)}, "cronoq_job_schedule"),
        ({"kind": "once", "run_at": None}, "cronoq_job_schedule"),
        ({"overlap": "sometimes"}, "cronoq_job_policies"),
        ({"priority": 101}, "cronoq_job_numbers"),
        ({"max_attempts": 0}, "cronoq_job_numbers"),
        ({"timeout": -timedelta(seconds=1)}, "cronoq_job_times"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_by_the_database(columns: dict[str, Any], constraint: str) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        make_job(**columns)


@pytest.mark.parametrize("column", ["anchor", "run_at", "starts_at", "ends_at", "every", "timeout", "misfire_window"])
def test_what_the_driver_cannot_read_does_not_get_into_a_job(column: str) -> None:
    """'infinity' in one row, put there by SQL, and the scheduler failed at reading it, each time round."""
    job = make_job()
    value = "interval '200 years'" if column in ("every", "timeout", "misfire_window") else "'infinity'"
    with pytest.raises(IntegrityError, match="cronoq_job_times"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE cronoq_job SET {column} = {value} WHERE id = %s", [job.pk])


@pytest.mark.parametrize("column", ["due_at", "scheduled_for", "expires_at", "created_at"])
def test_what_the_driver_cannot_read_does_not_get_into_a_run(column: str) -> None:
    run = make_run()
    with pytest.raises(IntegrityError, match="cronoq_run_times"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE cronoq_run SET {column} = 'infinity' WHERE id = %s", [run.pk])


def make_run(**columns: Any) -> Run:
    columns = {"trigger": "enqueue", "script": "tests.tasks.add", "status": "queued", **columns}
    return Run.objects.create(**columns)


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"status": "dreaming"}, "cronoq_run_(status|ended)"),
        ({"status": "running"}, "cronoq_run_owned"),
        ({"status": "queued", "claim": 7}, "cronoq_run_owned"),
        ({"status": "succeeded"}, "cronoq_run_ended"),
        ({"status": "queued", "finished_at": timezone.now()}, "cronoq_run_ended"),
        ({"status": "queued", "reason": "error"}, "cronoq_run_reason"),
        ({"status": "failed", "finished_at": timezone.now(), "reason": "overlap"}, "cronoq_run_reason"),
        ({"trigger": "slot"}, "cronoq_run_made"),
        ({"key_held": True}, "cronoq_run_key_held"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused_by_the_database(columns: dict[str, Any], constraint: str) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        make_run(**columns)


def test_a_slot_has_one_run() -> None:
    slot = timezone.now()
    job = UUID(int=1)
    make_run(trigger="slot", job_id=job, scheduled_for=slot)
    make_run(trigger="manual", job_id=job, scheduled_for=slot)  # run now, for the same slot, is no slot's run
    with pytest.raises(IntegrityError, match="cronoq_run_slot"), transaction.atomic():
        make_run(trigger="slot", job_id=job, scheduled_for=slot)


def test_a_key_is_held_once() -> None:
    make_run(key="k", key_hash=b"1", key_held=True)
    make_run(key="k", key_hash=b"1", key_held=False)
    with pytest.raises(IntegrityError, match="cronoq_run_key"), transaction.atomic():
        make_run(key="k", key_hash=b"1", key_held=True)


def test_a_run_that_ended_stays_as_it_ended() -> None:
    """A stale object's save() put a finished run back into the queue, and it ran again."""
    run = make_run()
    stale = Run.objects.get(pk=run.pk)
    Run.objects.filter(pk=run.pk).update(status="succeeded", finished_at=timezone.now())
    with pytest.raises(IntegrityError, match="has ended"), transaction.atomic():
        stale.save()
    with pytest.raises(IntegrityError, match="has ended"), transaction.atomic():
        Run.objects.filter(pk=run.pk).update(status="failed", reason="error")
    Run.objects.filter(pk=run.pk).update(key_held=False)  # housekeeping goes on
    assert Run.objects.get(pk=run.pk).status == "succeeded"


def test_deleting_a_job_does_not_touch_its_runs() -> None:
    """Deleting was blocked by history, or collected every row of it in memory."""
    job = make_job()
    run = make_run(trigger="manual", job=job, job_name=job.name)
    job.delete()
    assert Run.objects.get(pk=run.pk).job_name == "nightly"
