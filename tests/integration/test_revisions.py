"""Revisions: what changed, and back to what was."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError
from django.db import connection

from cronoq_django.errors import NotFound
from cronoq_django.models import Job
from cronoq_django.store import get_job, list_revisions, pause_job, rollback_job, upsert_job
from cronoq_django.store.revisions import DEFINITION, changes, get_revision

pytestmark = pytest.mark.django_db

FIRST: dict[str, Any] = {
    "script": "tests.tasks.add",
    "args": [1],
    "kwargs": {"b": 2.50},
    "kind": "every",
    "every": timedelta(days=1, hours=2, seconds=3),
    "anchor": datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
    "starts_at": datetime(2026, 1, 1, tzinfo=UTC),
    "jitter": timedelta(seconds=90),
    "timeout": timedelta(minutes=5),
    "backoff": None,
    "overlap": "queue",
    "description": "first\n",
}
SECOND: dict[str, Any] = {
    "script": "tests.tasks.echo",
    "args": [{"deep": ["ż", "\u0000", 1e300]}],
    "kwargs": {},
    "kind": "cron",
    "cron": "0 3 * * MON",
    "timezone": "Europe/Warsaw",
    "every": None,
    "jitter": timedelta(0),
    "overlap": "skip",
    "description": "second",
}


def test_a_rollback_brings_every_column_back() -> None:
    job = upsert_job("job", actor="anna", **FIRST)
    first = {name: getattr(job, name) for name in DEFINITION}
    second = upsert_job("job", actor="ben", **SECOND)
    then = {name: getattr(second, name) for name in DEFINITION}
    back = rollback_job(job.pk, 1, actor="carl")
    assert {name: getattr(back, name) for name in DEFINITION} == first
    assert back.schedule_revision == 3
    again = rollback_job(job.pk, 2, actor="carl")
    assert {name: getattr(again, name) for name in DEFINITION} == then
    assert [(one.number, one.changed_by) for one in list_revisions(job.pk)] == [
        (4, "carl"), (3, "carl"), (2, "ben"), (1, "anna"),
    ]  # fmt: skip


def test_a_rollback_to_what_is_writes_nothing() -> None:
    job = upsert_job("job", **FIRST)
    assert rollback_job(job.pk, 1).revision == 1


def test_a_rollback_leaves_a_paused_job_paused_and_adopts_one_of_the_code() -> None:
    job = upsert_job("job", **FIRST)
    Job.objects.filter(pk=job.pk).update(source="code")
    upsert_job("job", priority=5)
    pause_job(job.pk)
    back = rollback_job(job.pk, 1)
    assert (back.enabled, back.priority, back.source) == (False, 0, "admin")


def test_what_differs_is_told_column_by_column() -> None:
    job = upsert_job("job", **FIRST)
    upsert_job("job", priority=5, description="other")
    pause_job(job.pk)
    found = changes(get_revision(job.pk, 1), get_revision(job.pk, 2))
    assert [(one.column, one.before, one.after) for one in found] == [
        ("description", "first\n", "other"),
        ("priority", 0, 5),
    ]
    assert [one.column for one in changes(get_revision(job.pk, 2), get_revision(job.pk, 3))] == ["enabled"]
    assert ("name", None, "job") in [
        (one.column, one.before, one.after) for one in changes(None, get_revision(job.pk, 1))
    ]


def test_what_can_not_be_had_any_more_is_refused_and_nothing_changes() -> None:
    job = upsert_job("job", **FIRST)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cronoq_job SET script = 'no.longer'")
    upsert_job("job", script="tests.tasks.echo", args=[1], kwargs={})
    with pytest.raises(ValidationError) as refused:
        rollback_job(job.pk, 2)
    assert "script" in refused.value.message_dict
    with pytest.raises(NotFound, match="no revision 99"):
        rollback_job(job.pk, 99)
    with pytest.raises(NotFound):
        rollback_job(uuid4(), 1)
    assert get_job(job.pk).revision == 3


def test_a_name_that_another_job_took_meanwhile_is_refused() -> None:
    job = upsert_job("old", **FIRST)
    Job.objects.filter(pk=job.pk).update(name="new")
    upsert_job("old", **FIRST)
    with pytest.raises(ValidationError) as refused:
        rollback_job(job.pk, 1)
    assert "name" in refused.value.message_dict


def test_a_snapshot_older_than_a_column_keeps_that_columns_value() -> None:
    job = upsert_job("job", **FIRST)
    upsert_job("job", misfire_limit=7)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE cronoq_job_revision SET snapshot = (snapshot::jsonb - 'misfire_limit')::json WHERE number = 1"
        )
    upsert_job("job", priority=9)
    back = rollback_job(job.pk, 1)
    assert (back.misfire_limit, back.priority) == (7, 0)
