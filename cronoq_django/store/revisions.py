"""Revisions of jobs: what changed from one to the next, and back to an earlier one."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from cronoq_django.errors import NotFound
from cronoq_django.models import Job, JobRevision
from cronoq_django.models.choices import Source
from cronoq_django.models.fields import JsonField, dump_json
from cronoq_django.store.arguments import identifier
from cronoq_django.store.arguments import number as whole
from cronoq_django.store.jobs import SETTABLE, acting, get_job
from cronoq_django.store.session import alias_of
from cronoq_django.store.statements import statement

# What a job is, without what the triggers count; a rollback leaves it running or paused, as it is.
DEFINITION = tuple(
    field.attname
    for field in Job._meta.concrete_fields
    if field.attname in SETTABLE - {"source", "enabled", "declared_at"}
)
JSON = tuple(field.attname for field in Job._meta.concrete_fields if isinstance(field, JsonField))


@dataclass(frozen=True, slots=True)
class Change:
    """One column that differs between two revisions."""

    column: str
    before: Any
    after: Any


def list_revisions(job_id: UUID, *, using: str | None = None) -> QuerySet[JobRevision]:
    """The revisions of a job, the newest first. Empty for a job that does not exist: its own are gone with it."""
    return JobRevision.objects.using(alias_of(using)).filter(job=identifier("job_id", job_id)).order_by("-number")


def get_revision(job_id: UUID, number: int, *, using: str | None = None) -> JobRevision:
    """That revision of a job. Raises NotFound, also if it is older than the last hundred, which are kept."""
    revision = list_revisions(job_id, using=using).filter(number=whole("number", number, 0, 2**31 - 1)).first()
    if revision is None:
        raise NotFound(f"the job {job_id} has no revision {number} any more, or never had")
    return revision


def changes(before: JobRevision | None, after: JobRevision) -> list[Change]:
    """The columns in which two revisions differ, or all that are set if there is none before."""
    old, new = (before.snapshot if before else {}), after.snapshot
    columns = (*DEFINITION[:1], "enabled", "source", *DEFINITION[1:])
    found = [Change(name, old.get(name), new.get(name)) for name in columns if old.get(name) != new.get(name)]
    return found if before else [change for change in found if change.after not in ("", None)]


def rollback_job(job_id: UUID, number: int, *, actor: str = "", using: str | None = None) -> Job:
    """Make the job what it was at a revision, in a new revision; it stays running or paused, as it is.

    A job of the code is adopted by that, as by every edit of a person. Raises NotFound, and ValidationError, naming the
    field, where the old definition can't be had any more: its script is gone, its name is another job's.
    """
    alias = alias_of(using)
    with acting(actor, using=using):
        snapshot = get_revision(job_id, number, using=using).snapshot
        current = Job.objects.using(alias).select_for_update(no_key=True).filter(pk=job_id).first()
        if current is None:
            raise NotFound(f"there is no job with the id {job_id}")
        values = {name: snapshot.pop(name) for name in JSON if name in snapshot}
        params = {"job": job_id, "snapshot": dump_json(snapshot)}
        (job,) = Job.objects.using(alias).raw(statement("job_at_revision"), params)
        for name in JSON:
            setattr(job, name, values.get(name, getattr(current, name)))
        changed = [name for name in DEFINITION if getattr(job, name) != getattr(current, name)]
        if changed:
            job.source, job.enabled = Source.ADMIN, current.enabled
            job.full_clean()
            job.save(using=alias, update_fields=[*changed, "source"])
    return get_job(job_id, using=using)
