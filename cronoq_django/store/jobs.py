"""Jobs, as people and code see them: edits go through the ORM, and the triggers do the bookkeeping.

Each function takes the database alias of the cluster as `using` (default CRONOQ["DATABASE"]) and the `actor` that the
revision and the run will name.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.db.models import QuerySet

from cronoq_django import registry
from cronoq_django.errors import NotFound
from cronoq_django.models import Job
from cronoq_django.models.choices import Trigger
from cronoq_django.models.fields import clean_text, dump_json
from cronoq_django.store.arguments import flag, identifier, moment, text
from cronoq_django.store.runs import NewRun, insert_runs
from cronoq_django.store.session import alias_of

COUNTED = {"id", "revision", "schedule_revision", "schedule_changed_at", "created_at", "updated_at"}  # by triggers
SETTABLE = {field.attname for field in Job._meta.concrete_fields} - COUNTED


@contextmanager
def acting(actor: str, *, using: str | None = None) -> Iterator[None]:
    """A transaction whose changes of jobs are recorded as `actor`'s; within an open one, a part of it."""
    alias = alias_of(using)
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SELECT set_config('cronoq.actor', %s, true)", [clean_text(actor, 200)])
        yield
        cursor.execute("SELECT set_config('cronoq.actor', '', true)")


def get_job(job_id: UUID, *, using: str | None = None) -> Job:
    """The job of that id. Raises NotFound."""
    return _found(Job.objects.using(alias_of(using)).filter(pk=identifier("job_id", job_id)), f"id {job_id}")


def get_job_by_name(name: str, *, using: str | None = None) -> Job:
    """The job of that name. Raises NotFound."""
    return _found(Job.objects.using(alias_of(using)).filter(name=text("name", name, 200)), f"name {name!r}")


def list_jobs(*, enabled: bool | None = None, pool: str | None = None, using: str | None = None) -> QuerySet[Job]:
    """Jobs by name, with their states."""
    jobs = Job.objects.using(alias_of(using)).select_related("state").order_by("name")
    if enabled is not None:
        jobs = jobs.filter(enabled=flag("enabled", enabled))
    return jobs if pool is None else jobs.filter(pool=text("pool", pool, 100))


def list_due_jobs(*, now: datetime, using: str | None = None) -> QuerySet[Job]:
    """Jobs with a slot at or before `now` that no leader has fired yet, the longest due first."""
    jobs = Job.objects.using(alias_of(using)).select_related("state")
    due = jobs.filter(enabled=True, state__next_run_at__lte=moment("now", now), state__error="")
    return due.order_by("state__next_run_at", "id")


def upsert_job(name: str, *, actor: str = "", using: str | None = None, **columns: Any) -> Job:
    """Create the job of that name, or change the given columns of it.

    Raises ValidationError, naming the field; TypeError for a column that nobody can set.
    """
    try:
        text("name", name, 200)
    except (TypeError, ValueError) as error:
        raise ValidationError({"name": str(error)}) from error
    if unknown := sorted(columns.keys() - SETTABLE):
        raise TypeError(f"{unknown[0]} is no column of a job that can be set")
    with acting(actor, using=using):
        jobs = Job.objects.using(alias_of(using))
        job = jobs.select_for_update(no_key=True).filter(name=name).first() or Job(name=name)
        for column, value in columns.items():
            setattr(job, column, value)
        job.full_clean(validate_unique=False)
        job.save(using=alias_of(using), update_fields=None if job._state.adding else list(columns) or ["updated_at"])
    return get_job(job.pk, using=using)


def pause_job(job_id: UUID, *, actor: str = "", using: str | None = None) -> Job:
    """Give the job no slots until it is resumed. Raises NotFound."""
    return _enable(job_id, enabled=False, actor=actor, using=using)


def resume_job(job_id: UUID, *, actor: str = "", using: str | None = None) -> Job:
    """Let the job have slots again, from now on: those that passed meanwhile are not made up for. Raises NotFound."""
    return _enable(job_id, enabled=True, actor=actor, using=using)


def run_job_now(
    job_id: UUID,
    *,
    args: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    actor: str = "",
    using: str | None = None,
) -> UUID:
    """Make a run of the job at once, whatever its kind, also when it is paused; the run's id.

    Other arguments than the job's may be given. Raises NotFound, Quarantined (they don't bind to the script's
    signature), TypeError or ValueError (they are not JSON).
    """
    job = get_job(job_id, using=using)
    args = job.args if args is None else args
    kwargs = job.kwargs if kwargs is None else kwargs
    registry.find(job.script).bind(args, kwargs)
    run = NewRun(
        trigger=Trigger.MANUAL,
        job_id=job.pk,
        job_name=job.name,
        job_revision=job.revision,
        actor=actor,
        script=job.script,
        args=dump_json(args, "args"),
        kwargs=dump_json(kwargs, "kwargs"),
        pool=job.pool,
        priority=job.priority,
        timeout=job.timeout,
        max_attempts=job.max_attempts,
        backoff=None if job.backoff is None else dump_json(job.backoff, "backoff"),
    )
    with connections[alias_of(using)].cursor() as cursor:
        insert_runs(cursor, [run])
    return run.id


def _enable(job_id: UUID, *, enabled: bool, actor: str, using: str | None) -> Job:
    id_ = identifier("job_id", job_id)
    with acting(actor, using=using):
        Job.objects.using(alias_of(using)).filter(pk=id_).exclude(enabled=enabled).update(enabled=enabled)
    return get_job(job_id, using=using)


def _found(jobs: QuerySet[Job], what: str) -> Job:
    job = jobs.first()
    if job is None:
        raise NotFound(f"there is no job with the {what}")
    return job
