"""What people do to runs: cancel them, and retry those that ended."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connections, transaction

from cronoq_django.errors import NotFound
from cronoq_django.models import Run
from cronoq_django.models.choices import TERMINAL, Trigger
from cronoq_django.models.fields import dump_json
from cronoq_django.store.records import run_id
from cronoq_django.store.runs import NewRun, cancel_waiting, request_cancel
from cronoq_django.store.session import alias_of
from cronoq_django.store.submit import in_order, key_hash, submit_runs

TRIES = 20
PAUSE = 0.05  # seconds between two tries


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel came to: runs that waited and are cancelled, running ones that are asked, those that have ended,
    and those that somebody else was changing all the time: they are as they were."""

    cancelled: int
    requested: int
    ended: int
    busy: int = 0


def cancel(*runs: Any, actor: str = "", using: str | None = None) -> Cancelled:
    """Cancel runs, given as results, records, bound tasks or ids; how many could be. See `cancel_runs`.

    >>> cancel(result, actor="anna")
    """
    return cancel_runs([run_id(run) for run in runs], actor=actor, using=using)


def retry(*runs: Any, actor: str = "", using: str | None = None) -> dict[UUID, UUID]:
    """Make new runs of some that have ended, given as for `cancel`; {old id: new id}. See `retry_runs`."""
    return retry_runs([run_id(run) for run in runs], actor=actor, using=using)


def cancel_runs(ids: Sequence[UUID], *, actor: str = "", using: str | None = None) -> Cancelled:
    """Cancel waiting runs, and ask the owners of running ones to. Those that have ended stay as they are.

    A run that is being claimed or completed at this moment is neither: it is tried again, for a second. Waiting and
    running ones go in transactions of their own, unless the caller has one open.
    """
    alias, by = alias_of(using), f"Cancelled by {actor}." if actor else ""
    cancelled, left = 0, list(set(ids))
    asked: set[UUID] = set()  # also those that have ended by it meanwhile
    for attempt in range(TRIES):
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cancelled += len(cancel_waiting(cursor, ids=left, error=by, limit=len(left)))
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            asked |= set(request_cancel(cursor, left))
        rows = Run.objects.using(alias).filter(pk__in=ids, finished_at=None).values_list("pk", "cancel_requested_at")
        left = [pk for pk, asked_at in rows if asked_at is None]
        asked |= {pk for pk, asked_at in rows if asked_at is not None}
        if not left:
            break
        if attempt < TRIES - 1:
            time.sleep(PAUSE)
    return Cancelled(cancelled, len(asked), len(set(ids)) - cancelled - len(asked) - len(left), len(left))


def retry_runs(ids: Sequence[UUID], *, actor: str = "", using: str | None = None) -> dict[UUID, UUID]:
    """Make a new run of each that has ended, with the same arguments; {old: new}. Those still open are left out.

    A run with a key that another one has taken meanwhile is answered with that one: there is one at a time. A new run
    waits for nothing; what was skipped because of the old one stays so. Raises NotFound if one of the ids does not
    exist; nothing is retried then.
    """
    alias = alias_of(using)
    found = {run.pk: run for run in Run.objects.using(alias).filter(pk__in=ids)}
    if missing := set(ids) - found.keys():
        raise NotFound(f"there is no run {sorted(missing)[0]}")
    fresh = {run.pk: _again(run, actor) for run in found.values() if run.status in TERMINAL}
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        # They may hold their keys still, for their `key_for`; the new ones get them.
        holders = Run.objects.using(alias).filter(pk__in=fresh, key_held=True)
        locked = holders.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True)
        holders.filter(pk__in=list(locked)).update(key_held=False)
        made = submit_runs(cursor, in_order(fresh.values()))
    return {old: made[new.id].id for old, new in fresh.items()}


def _again(run: Run, actor: str) -> NewRun:
    return NewRun(
        trigger=Trigger.MANUAL,
        retry_of_id=run.pk,
        actor=actor,
        tags=dump_json(run.tags) if run.tags else None,
        key=run.key,
        key_hash=None if run.key is None else key_hash(run.key),
        key_for=run.key_for,
        script=run.script,
        args=dump_json(run.args, "args"),
        kwargs=dump_json(run.kwargs, "kwargs"),
        pool=run.pool,
        priority=run.priority,
        timeout=run.timeout,
        max_attempts=run.max_attempts,
        backoff=None if run.backoff is None else dump_json(run.backoff, "backoff"),
        job_id=run.job_id,
        job_name=run.job_name,
        job_revision=run.job_revision,
        root_id=run.root_id,
        parent_id=run.parent_id,
    )
