"""The operations on jobs: what is refused names the field; what people do is recorded as theirs."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import FieldError, ValidationError
from django.utils import timezone

from cronoq_django.errors import NotFound, Quarantined
from cronoq_django.models import Job, JobRevision, JobState, Run
from cronoq_django.models.choices import Status
from cronoq_django.store.controls import cancel_runs, retry_runs
from cronoq_django.store.jobs import (
    get_job,
    get_job_by_name,
    list_due_jobs,
    list_jobs,
    pause_job,
    resume_job,
    run_job_now,
    upsert_job,
)

pytestmark = pytest.mark.django_db

NIGHTLY = {"script": "tests.tasks.add", "args": [1], "kind": "cron", "cron": "0 3 * * *", "timezone": "Europe/Warsaw"}


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"script": "tests.tasks.gone"}, "script"),
        ({"script": "os.system"}, "script"),
        ({"script": ""}, "script"),
        ({"args": [1, 2, 3]}, "kwargs"),
        ({"kwargs": {"c": 1}}, "kwargs"),
        ({"args": {"a": 1}}, "args"),
        ({"kwargs": [1]}, "kwargs"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "60 * * * *"}, "cron"),
        ({"cron": "* * * *"}, "cron"),
        ({"cron": ""}, "cron"),
        ({"timezone": "America/New_Yrok"}, "timezone"),
        ({"timezone": "UTC+3"}, "timezone"),
        ({"timezone": "../UTC"}, "timezone"),
        ({"timezone": "localtime"}, "timezone"),
        ({"timezone": "x" * 300}, "timezone"),
        ({"kind": "every", "every": None}, "every"),
        ({"kind": "every", "every": timedelta(milliseconds=5)}, "every"),
        ({"kind": "once", "run_at": None}, "run_at"),
        ({"kind": "weekly"}, "kind"),
        ({"overlap": "sometimes"}, "overlap"),
        ({"misfire": "never"}, "misfire"),
        ({"priority": 101}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": timedelta()}, "timeout"),
        ({"misfire_window": -timedelta(seconds=1)}, "misfire_window"),
        ({"kind": "once", "run_at": datetime(1, 1, 1, tzinfo=UTC)}, "run_at"),
        ({"starts_at": datetime(2027, 1, 1, tzinfo=UTC), "ends_at": datetime(2026, 1, 1, tzinfo=UTC)}, "__all__"),
        ({"backoff": {"frist": 1}}, "backoff"),
    ],
)
def test_what_could_never_fire_is_refused_naming_the_field(columns: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        upsert_job("nightly", **{**NIGHTLY, **columns})
    assert field in refusal.value.message_dict
    assert not Job.objects.exists()


def test_a_name_is_bounded() -> None:
    with pytest.raises(ValidationError, match="at most 200"):
        upsert_job("x" * 201, **NIGHTLY)


def test_upsert_creates_and_changes_only_what_is_given() -> None:
    job = upsert_job("nightly", actor="ada", **NIGHTLY)
    assert (job.revision, job.schedule.explain()) != (0, "")
    changed = upsert_job("nightly", actor="grace", description="the books")
    assert (changed.pk, changed.cron, changed.revision) == (job.pk, "0 3 * * *", 2)
    assert list(JobRevision.objects.order_by("number").values_list("changed_by", flat=True)) == ["ada", "grace"]


def test_looking_up() -> None:
    job = upsert_job("nightly", **NIGHTLY)
    assert get_job(job.pk) == get_job_by_name("nightly") == job
    with pytest.raises(NotFound, match="no job"):
        get_job(uuid4())
    with pytest.raises(NotFound, match="'nihgtly'"):
        get_job_by_name("nihgtly")
    pause_job(job.pk)
    assert list(list_jobs(enabled=False)) == [job]
    assert not list_jobs(enabled=True).exists()
    assert not list_jobs(pool="mail").exists()


def test_due_jobs_are_listed() -> None:
    job = upsert_job("nightly", **NIGHTLY)
    now = timezone.now()
    JobState.objects.create(job=job, partition=0, planned_revision=1, epoch=1, next_run_at=now)
    assert list(list_due_jobs(now=now)) == [job]
    assert not list_due_jobs(now=now - timedelta(seconds=1)).exists()


def test_pausing_twice_is_one_change() -> None:
    job = upsert_job("nightly", **NIGHTLY)
    assert pause_job(job.pk).enabled is False
    assert pause_job(job.pk).revision == 2
    assert resume_job(job.pk).enabled is True


def test_run_now_works_on_any_job_and_with_other_arguments() -> None:
    job = pause_job(upsert_job("nightly", **NIGHTLY).pk)
    run = Run.objects.get(pk=run_job_now(job.pk, args=[5], kwargs={"b": 6}, actor="ada"))
    assert (run.trigger, run.args, run.kwargs, run.actor) == ("manual", [5], {"b": 6}, "ada")
    assert (run.job_id, run.job_name, run.job_revision, run.scheduled_for) == (job.pk, "nightly", 2, None)
    with pytest.raises(Quarantined, match="does not take these arguments"):
        run_job_now(job.pk, args=[1, 2, 3])
    assert Run.objects.count() == 1


def test_a_retry_is_a_new_run() -> None:
    job = upsert_job("nightly", **NIGHTLY)
    first = run_job_now(job.pk)
    assert retry_runs([first]) == {}  # it is still open
    cancel_runs([first], actor="ada")
    (again,) = retry_runs([first], actor="grace").values()
    assert Run.objects.get(pk=first).error == "Cancelled by ada."
    run = Run.objects.get(pk=again)
    assert (run.retry_of_id, run.status, run.job_name) == (first, Status.QUEUED, "nightly")
    assert (run.args, run.actor) == ([1], "grace")
    with pytest.raises(NotFound):
        retry_runs([first, uuid4()])
    assert Run.objects.count() == 2


def test_cancelling_says_what_came_of_it() -> None:
    job = upsert_job("nightly", **NIGHTLY)
    ids = [run_job_now(job.pk) for _ in range(3)]
    cancel_runs(ids[:1])
    done = cancel_runs(ids)
    assert (done.cancelled, done.requested, done.ended) == (2, 0, 1)


def test_json_columns_are_not_looked_into() -> None:
    with pytest.raises(FieldError, match="JSON text"):
        Job.objects.filter(args=[1]).exists()
    with pytest.raises(FieldError, match="JSON text"):
        Job.objects.filter(kwargs__a=1).exists()
    assert not Job.objects.filter(backoff__isnull=True).exists()
