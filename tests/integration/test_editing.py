"""Edits and ticks at the same time: neither loses the edit nor the slot, and nobody waits for the other.

Another scheduler read a job, fired, and wrote the whole row back: an edit made meanwhile was gone.
"""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from cronoq_django.leader.fence import Fence
from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages.fire import Fire
from cronoq_django.leader.stages.plan import Plan
from cronoq_django.models import Job, JobState, Run
from cronoq_django.store import upsert_job
from cronoq_django.store.session import Session, connect, transaction

pytestmark = pytest.mark.django_db(transaction=True)


def step(stage: Stage, fence: Fence) -> int:
    with fence.transaction() as tx:
        return stage.step(tx)


@pytest.fixture
def editor() -> Iterator[Session]:
    """Somebody else's session, who is not patient."""
    session = connect("default", name="editor", settings={"lock_timeout": "1s"})
    yield session
    session.close()


@pytest.fixture
def due(leading: Fence) -> Job:
    """A job with a slot that is due."""
    job = upsert_job("due", script="tests.tasks.add", args=[1], kind="cron", cron="0 3 * * *")
    step(Plan(), leading)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cronoq_job_state SET next_run_at = date_trunc('hour', clock_timestamp())")
    return job


EDITS = {
    "update": "UPDATE cronoq_job SET cron = '0 5 * * *', args = '[2]' WHERE name = 'due'",
    "the whole row": "UPDATE cronoq_job SET cron = '0 5 * * *', args = '[2]', enabled = enabled, revision = 1, "
    "schedule_revision = 1, schedule_changed_at = created_at WHERE name = 'due'",
    "copied and back": "WITH new AS (SELECT id, '0 5 * * *' AS cron FROM cronoq_job) "
    "UPDATE cronoq_job SET cron = new.cron, args = '[2]' FROM new WHERE new.id = cronoq_job.id AND name = 'due'",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_during_a_tick_waits_for_nothing_and_is_in_force_after_it(
    leading: Fence, due: Job, editor: Session, edit: str
) -> None:
    with leading.transaction() as tx:
        assert Fire().step(tx) == 1  # it holds the job's state, and has made the run
        with transaction(editor) as cursor:
            cursor.execute(EDITS[edit])
    assert step(Plan(), leading) == 1
    run, state = Run.objects.get(), JobState.objects.get()
    assert (run.args, run.job_revision) == ([1], 1)
    assert state.last_slot == run.scheduled_for
    assert (state.next_run_at.hour, state.planned_revision) == (5, 2)
    assert Job.objects.get(pk=due.pk).args == [2]


@pytest.mark.parametrize("edit", EDITS)
def test_a_tick_during_an_edit_fires_what_is_committed(leading: Fence, due: Job, editor: Session, edit: str) -> None:
    with transaction(editor) as cursor:
        cursor.execute(EDITS[edit])
        assert step(Fire(), leading) == 1
        assert step(Plan(), leading) == 0
    assert step(Fire(), leading) == 0  # nothing by the old schedule any more
    assert step(Plan(), leading) == 1
    assert list(Run.objects.values_list("args", "job_revision")) in ([([1], 1)], [("[1]", 1)])
    state = JobState.objects.get()
    assert (state.next_run_at.hour, state.planned_revision) == (5, 2)
    assert state.next_run_at > timezone.now()


def test_an_edit_committed_late_is_in_force_at_once_and_no_other_editor_waits(
    leading: Fence, due: Job, editor: Session
) -> None:
    other = upsert_job("other", script="tests.tasks.add", args=[1], kind="cron", cron="0 3 * * *")
    step(Plan(), leading)
    with transaction(editor) as cursor:
        cursor.execute(EDITS["update"])
        with connection.cursor() as mine:
            mine.execute("SET lock_timeout = '1s'")
        Job.objects.filter(pk=other.pk).update(cron="0 6 * * *")
        new = upsert_job("new", script="tests.tasks.add", args=[1], kind="manual")
        assert step(Plan(), leading) == 2
        Job.objects.filter(pk=new.pk).delete()
        step(Plan(), leading)
    step(Plan(), leading)
    hours = dict(JobState.objects.values_list("job__name", "next_run_at__hour"))
    assert hours == {"due": 5, "other": 6}


def test_edits_and_ticks_race_a_hundred_times(leading: Fence, wait_until: Callable[..., Any]) -> None:
    """Whatever the order, the last edit is in force at the end and no slot has two runs."""
    job = upsert_job(
        "raced", script="tests.tasks.add", args=[0], kind="every", every=timedelta(seconds=1), overlap="allow"
    )
    step(Plan(), leading)
    ended = threading.Event()

    def edit() -> None:
        session = connect("default", name="editor")
        for number in range(1, 101):
            with transaction(session) as cursor:
                cursor.execute("UPDATE cronoq_job SET args = %s::json, jitter = %s", (f"[{number}]", timedelta(0)))
        session.close()
        ended.set()

    thread = threading.Thread(target=edit)
    thread.start()
    while not ended.is_set():
        with connection.cursor() as cursor:
            cursor.execute("UPDATE cronoq_job_state SET next_run_at = clock_timestamp()")
        step(Fire(), leading)
        step(Plan(), leading)
    thread.join()
    while step(Plan(), leading):
        pass
    job.refresh_from_db()
    assert job.args == [100]
    assert JobState.objects.get().planned_revision == job.schedule_revision
    slots = list(Run.objects.values_list("scheduled_for", flat=True))
    assert len(slots) == len(set(slots)) > 1
