"""Listing: runs in pages, the newest first.

A page is a walk along the primary key from the last page's last run (ids increase with time), so a page costs the same
wherever it is, and a run that is added meanwhile moves none. What is asked for can spare the walk:

- cheap, whatever lies behind: no filter at all; `key`; `tags`; an open `status`; and, once the table has been analyzed
  (autovacuum does that), `finished_since`
- only as cheap as matching runs are frequent among the newest: `pool`, `script`, `job`, `trigger`, a terminal `status`,
  `created_since`, and the upper bounds. Where matches are rare, add `finished_since`, or an open `status`.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from cronoq_django.errors import translated
from cronoq_django.models import Run
from cronoq_django.models.choices import Status, Trigger
from cronoq_django.models.fields import TEXT_LIMIT
from cronoq_django.store.arguments import identifier, items, moment, number, text, texts, word
from cronoq_django.store.records import LONGEST_TAG, TaskRecord, record, run_id
from cronoq_django.store.session import alias_of
from cronoq_django.store.submit import key_hash

LARGEST_PAGE = 1000


def list_runs_for_job(job: UUID, *, limit: int = 100, before: Any = None, using: str | None = None) -> list[TaskRecord]:
    """The runs of a job (its id), the newest first: `list_runs_filtered` with nothing but the job. Empty for a job that
    never was; those of one that is gone stay until they are pruned."""
    return list_runs_filtered(job=identifier("job", job), limit=limit, before=before, using=using)


def list_runs_filtered(
    *,
    status: str | Collection[str] | None = None,
    pool: str | None = None,
    script: str | None = None,
    tags: Collection[str] | None = None,
    job: UUID | None = None,
    trigger: str | None = None,
    key: str | None = None,
    created_since: datetime | None = None,
    created_before: datetime | None = None,
    finished_since: datetime | None = None,
    finished_before: datetime | None = None,
    limit: int = 100,
    before: Any = None,
    using: str | None = None,
) -> list[TaskRecord]:
    """Up to `limit` (1,000 at most) of the runs that meet all that is given, the newest first.

    `status`: one or several; `tags`: all of them; `job`: an id; `trigger`: "slot", "manual", "enqueue"; `key`: also of
    runs that hold it no more; bounds: aware datetimes, `since` included, `before` not. The next page begins `before`
    the last run of this one (a record, or an id). Which filters are cheap, the top of this module says.

    >>> page = list_runs_filtered(status="failed", finished_since=yesterday)
    >>> page = list_runs_filtered(status="failed", finished_since=yesterday, before=page[-1])

    Raises TypeError or ValueError, naming the argument; Unavailable.
    """
    wanted: dict[str, Any] = {}
    any_status = Q()
    if status is not None:
        some = [status] if isinstance(status, str) else items("status", status)
        if not some:
            raise ValueError("status must name at least one")
        for one in some:
            any_status |= Q(status=word("status", one, Status.values))  # one by one, as each has its partial index
    if tags is not None and (named := texts("tags", tags, LONGEST_TAG)):
        wanted["tags__contains"] = named
    if key is not None:
        wanted["key_hash"] = key_hash(text("key", key, TEXT_LIMIT))
    given: dict[str, tuple[Any, Any]] = {
        "pool": (pool, lambda: text("pool", pool, 100)),
        "script": (script, lambda: text("script", script, 500)),
        "job": (job, lambda: identifier("job", job)),
        "trigger": (trigger, lambda: word("trigger", trigger, Trigger.values)),
        "created_at__gte": (created_since, lambda: moment("created_since", created_since)),
        "created_at__lt": (created_before, lambda: moment("created_before", created_before)),
        "finished_at__gte": (finished_since, lambda: moment("finished_since", finished_since)),
        "finished_at__lt": (finished_before, lambda: moment("finished_before", finished_before)),
        "id__lt": (before, lambda: run_id(before)),
    }
    wanted |= {lookup: check() for lookup, (value, check) in given.items() if value is not None}
    number("limit", limit, 1, LARGEST_PAGE)
    with translated():
        rows = Run.objects.using(alias_of(using)).filter(any_status, **wanted).order_by("-id")
        return [record(row) for row in rows[:limit]]
