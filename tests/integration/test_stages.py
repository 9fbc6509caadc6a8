"""The leader's stages, run by hand on a real session: plan, fire, stage, rescue, sync, prune."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from cronoq_django import registry
from cronoq_django.errors import Fenced
from cronoq_django.leader.election import Election, Identity
from cronoq_django.leader.fence import Fence
from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages.admit import Admit
from cronoq_django.leader.stages.fire import Fire
from cronoq_django.leader.stages.pause import Pause
from cronoq_django.leader.stages.plan import Plan
from cronoq_django.leader.stages.prune import Prune
from cronoq_django.leader.stages.rescue import Rescue
from cronoq_django.leader.stages.stage import StageRuns
from cronoq_django.leader.stages.sync import Sync
from cronoq_django.models import Attempt, Job, JobRevision, JobState, Leader, Pool, Run, Script
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import runs
from cronoq_django.store.jobs import list_jobs, pause_job, resume_job, run_job_now, upsert_job
from cronoq_django.store.session import connect, transaction
from cronoq_django.store.statements import statement

pytestmark = pytest.mark.django_db(transaction=True)


def step(stage: Stage, fence: Fence) -> int:
    with fence.transaction() as tx:
        return stage.step(tx)


def make_job(name: str = "j", **columns: Any) -> Job:
    columns = {"script": "tests.tasks.add", "args": [1], "kind": "every", "every": timedelta(seconds=10), **columns}
    return upsert_job(name, **columns)


def make_due(job: Job, *, ago: timedelta) -> None:
    """As if the leader had been away since the slot `ago`."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_job DISABLE TRIGGER USER")
        cursor.execute("UPDATE cronoq_job SET anchor = clock_timestamp() - %s - every WHERE id = %s", [ago, job.pk])
        cursor.execute("ALTER TABLE cronoq_job ENABLE TRIGGER USER")
        cursor.execute(
            "UPDATE cronoq_job_state SET next_run_at = (SELECT anchor + every FROM cronoq_job WHERE id = job_id) "
            "WHERE job_id = %s",
            [job.pk],
        )


def test_a_new_job_is_planned_after_its_creation(leading: Fence) -> None:
    job = make_job()
    assert step(Plan(), leading) == 1
    state = JobState.objects.get(job=job)
    assert state.next_run_at == job.created_at + timedelta(seconds=10)
    assert (state.planned_revision, state.epoch) == (1, leading.term.epoch)
    assert step(Plan(), leading) == 0


def test_a_due_slot_becomes_one_run_with_its_instant(leading: Fence) -> None:
    job = make_job()
    step(Plan(), leading)
    make_due(job, ago=timedelta(seconds=1))
    slot = JobState.objects.get(job=job).next_run_at
    assert step(Fire(), leading) == 1
    assert step(Fire(), leading) == 0
    run = Run.objects.get()
    assert (run.scheduled_for, run.trigger, run.status, run.job_name) == (slot, "slot", Status.QUEUED, "j")
    assert (run.job_revision, run.epoch) == (1, leading.term.epoch)
    assert JobState.objects.get(job=job).next_run_at == slot + timedelta(seconds=10)


def test_a_slot_fired_by_a_predecessor_whose_commit_was_not_heard_of_stays_one_run(leading: Fence) -> None:
    job = make_job()
    step(Plan(), leading)
    make_due(job, ago=timedelta(seconds=1))
    slot = JobState.objects.get(job=job).next_run_at
    Run.objects.create(trigger="slot", job=job, scheduled_for=slot, script=job.script, status=Status.QUEUED)
    step(Fire(), leading)
    assert Run.objects.count() == 1
    assert JobState.objects.get(job=job).next_run_at > timezone.now()


def test_missed_slots_come_as_one_run_and_one_row_that_says_so(leading: Fence) -> None:
    """After a deploy, minutely jobs were queued once per missed minute, and mails went out as often."""
    job = make_job(every=timedelta(minutes=1))
    step(Plan(), leading)
    make_due(job, ago=timedelta(minutes=10, seconds=30))
    step(Fire(), leading)
    fired = Run.objects.get(status=Status.QUEUED)
    skipped = Run.objects.get(status=Status.SKIPPED)
    assert timezone.now() - fired.scheduled_for < timedelta(minutes=1)
    assert skipped.reason == Reason.MISFIRE
    assert "10" in skipped.error
    assert JobState.objects.get(job=job).missed_count == 10


def test_an_open_run_makes_the_next_slot_a_skipped_one(leading: Fence) -> None:
    job = make_job()
    step(Plan(), leading)
    run_job_now(job.pk)
    make_due(job, ago=timedelta(seconds=1))
    step(Fire(), leading)
    skipped = Run.objects.get(trigger="slot")
    assert (skipped.status, skipped.reason) == (Status.SKIPPED, Reason.OVERLAP)
    assert JobState.objects.get(job=job).skipped_count == 1


def test_a_paused_job_has_no_slots_and_makes_up_for_none(leading: Fence) -> None:
    job = make_job()
    step(Plan(), leading)
    pause_job(job.pk, actor="ada")
    step(Plan(), leading)
    assert JobState.objects.get(job=job).next_run_at is None
    resume_job(job.pk, actor="ada")
    step(Plan(), leading)
    assert JobState.objects.get(job=job).next_run_at > timezone.now()
    assert [r.changed_by for r in JobRevision.objects.filter(job=job).order_by("number")][1:] == ["ada", "ada"]
    assert not Run.objects.exists()


def test_a_slot_of_the_old_schedule_does_not_fire_before_the_edit_is_planned(leading: Fence) -> None:
    """A daily job was moved from 23:00 to 05:00 at noon, and still ran at 23:00 once."""
    job = make_job()
    step(Plan(), leading)
    make_due(job, ago=timedelta(seconds=1))
    upsert_job("j", every=timedelta(hours=1), anchor=timezone.now())
    assert step(Fire(), leading) == 0
    step(Plan(), leading)
    assert step(Fire(), leading) == 0
    assert not Run.objects.exists()
    assert JobState.objects.get(job=job).next_run_at > timezone.now() + timedelta(minutes=59)


def test_an_open_edit_of_a_job_does_not_stop_its_firing(leading: Fence) -> None:
    job = make_job()
    step(Plan(), leading)
    make_due(job, ago=timedelta(seconds=1))
    editor = connect("default", name="editor")
    with transaction(editor) as cursor:
        cursor.execute("UPDATE cronoq_job SET description = 'being edited' WHERE id = %s", (job.pk,))
        assert step(Fire(), leading) == 1  # while the edit is open; would time out if it waited
    editor.close()
    assert Run.objects.count() == 1
    assert JobState.objects.get(job=job).next_run_at > timezone.now()
    assert Job.objects.get(pk=job.pk).description == "being edited"


def test_a_once_job_runs_once(leading: Fence) -> None:
    job = make_job(kind="once", run_at=timezone.now() - timedelta(seconds=2), every=None)
    step(Plan(), leading)  # created after its time: still due
    step(Fire(), leading)
    state = JobState.objects.get(job=job)
    assert Run.objects.count() == 1
    assert state.next_run_at is None
    assert state.completed_at is not None
    pause_job(job.pk)
    step(Plan(), leading)
    resume_job(job.pk)
    step(Plan(), leading)
    step(Fire(), leading)
    assert Run.objects.count() == 1


def test_a_once_job_whose_time_passed_while_it_was_paused_says_so(leading: Fence) -> None:
    job = make_job(kind="once", run_at=timezone.now() - timedelta(seconds=2), every=None, enabled=False)
    step(Plan(), leading)
    resume_job(job.pk)
    step(Plan(), leading)
    state = JobState.objects.get(job=job)
    assert state.next_run_at is None
    assert "passed while" in state.explanation
    assert not Run.objects.exists()


def test_a_job_with_a_withdrawn_zone_is_set_aside_and_the_others_fire(leading: Fence) -> None:
    """One misspelt zone threw out of the loop, and all schedules of the deployment stopped."""
    good = make_job("good")
    bad = make_job("bad")
    step(Plan(), leading)
    make_due(good, ago=timedelta(seconds=1))
    Job.objects.filter(pk=bad.pk).update(kind="cron", cron="0 0 * * *", timezone="US/Pacific-New")
    step(Plan(), leading)
    assert step(Fire(), leading) == 1
    state = JobState.objects.get(job=bad)
    assert "timezone" in state.error
    assert state.next_run_at is None
    upsert_job("bad", timezone="America/Los_Angeles")
    step(Plan(), leading)
    assert JobState.objects.get(job=bad).error == ""


def test_a_job_whose_run_the_database_refuses_is_set_aside_alone(leading: Fence) -> None:
    good, bad = make_job("good"), make_job("bad")
    step(Plan(), leading)
    for job in (good, bad):
        make_due(job, ago=timedelta(seconds=1))
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE cronoq_run ADD CONSTRAINT planted CHECK (job_id IS DISTINCT FROM '{bad.pk}')")
    try:
        step(Fire(), leading)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE cronoq_run DROP CONSTRAINT planted")
    assert [run.job_name for run in Run.objects.all()] == ["good"]
    assert "planted" in JobState.objects.get(job=bad).error


def test_a_deleted_job_fires_no_more_and_its_waiting_runs_are_cancelled(leading: Fence) -> None:
    job = make_job()
    step(Plan(), leading)
    run_job_now(job.pk)
    make_due(job, ago=timedelta(seconds=1))
    job.delete()
    assert step(Fire(), leading) == 0
    step(Plan(), leading)
    run = Run.objects.get()
    assert (run.status, run.reason, run.job_name) == (Status.CANCELLED, Reason.JOB_DELETED, "j")


def test_a_delayed_run_is_queued_when_due(leading: Fence) -> None:
    with connection.cursor() as cursor:
        soon = timezone.now() + timedelta(hours=1)
        runs.insert_runs(
            cursor, [runs.NewRun(script="s", due_at=soon), runs.NewRun(script="s", due_at=soon + timedelta(hours=1))]
        )
    with leading.transaction() as tx:
        assert runs.stage(tx, limit=10) == 0
        assert runs.stage(tx, limit=10, now=soon) == 1
    assert step(StageRuns(), leading) == 0


def test_locked_runs_do_not_keep_others_from_being_queued(leading: Fence) -> None:
    """The first batch of due runs was locked, and nothing behind it was ever looked at."""
    with connection.cursor() as cursor:
        soon = timezone.now() + timedelta(hours=1)
        runs.insert_runs(cursor, [runs.NewRun(script="s", due_at=soon + timedelta(seconds=n)) for n in range(4)])
    console = connect("default", name="console")
    with transaction(console) as theirs:
        theirs.execute("SELECT FROM cronoq_run ORDER BY due_at LIMIT 2 FOR UPDATE")
        with leading.transaction() as tx:
            assert runs.stage(tx, limit=2, now=soon + timedelta(minutes=1)) == 2
    console.close()


def test_a_held_state_is_planned_later_and_the_others_now(leading: Fence) -> None:
    held, other = make_job("held"), make_job("other")
    step(Plan(), leading)
    for name in ("held", "other"):
        upsert_job(name, every=timedelta(minutes=5))
    console = connect("default", name="console")
    with transaction(console) as theirs:
        theirs.execute("SELECT FROM cronoq_job_state WHERE job_id = %s FOR UPDATE", (held.pk,))
        step(Plan(), leading)
        assert JobState.objects.get(job=other).planned_revision == 2
        assert JobState.objects.get(job=held).planned_revision == 1
    console.close()
    step(Plan(), leading)
    assert JobState.objects.get(job=held).planned_revision == 2


def test_a_step_that_takes_too_long_is_cut_short_and_gone_on_with(leading: Fence, settings: Any) -> None:
    """After days away, deciding 100 minutely jobs in one transaction took so long that the server ended the session,
    and with it the leadership, again and again."""
    settings.CRONOQ = {**settings.CRONOQ, "LEADER_TTL": 1}
    jobs = [make_job(f"minutely-{n}", every=None, kind="cron", cron="* * * * *") for n in range(12)]
    step(Plan(), leading)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cronoq_job_state SET next_run_at = date_trunc('minute', now()) - interval '9 days'")
    fire = Fire()
    assert step(fire, leading) == fire.batch  # more to do
    fired = Run.objects.filter(status=Status.QUEUED).count()
    assert 1 <= fired < len(jobs)
    while step(fire, leading) == fire.batch:
        pass
    assert Run.objects.filter(status=Status.QUEUED).count() == len(jobs)


def test_slots_that_fired_are_not_planned_again_by_a_change_that_was_committed_late(leading: Fence) -> None:
    job = make_job()
    step(Plan(), leading)
    JobState.objects.update(last_slot=timezone.now() + timedelta(seconds=30))
    upsert_job("j", jitter=timedelta(seconds=1))
    step(Plan(), leading)
    state = JobState.objects.get(job=job)
    assert state.next_run_at > state.last_slot


def test_a_new_leader_gives_living_workers_the_time_to_renew(leading: Fence) -> None:
    """The database was away for longer than the leases. The leader came back first, and took every running task away
    from the worker that was executing it."""
    assert Rescue().seconds_until_due() >= 2
    assert not Rescue().is_due(())


def test_rescue_takes_back_what_expired_and_nothing_else(leading: Fence) -> None:
    with connection.cursor() as cursor:
        runs.insert_runs(cursor, [runs.NewRun(script="s") for _ in range(3)])
        for seconds in (-1, 30):
            runs.claim_runs(cursor, worker=Identity().id, pool="default", limit=1, lease=timedelta(seconds=seconds))
    Run.objects.filter(status=Status.RUNNING).update(started_at=timezone.now())
    assert step(Rescue(), leading) == 1
    assert Attempt.objects.get().outcome == "lost"
    assert sorted(Run.objects.values_list("status", flat=True)) == ["queued", "queued", "running"]


def test_jobs_in_code_become_rows_and_a_pause_survives(leading: Fence) -> None:
    sync = Sync(timezone.now())
    step(sync, leading)
    declared = registry.jobs()
    assert declared
    assert set(Job.objects.filter(source="code").values_list("name", flat=True)) == set(declared)
    assert set(Script.objects.values_list("name", flat=True)) >= {"tests.tasks.add"}
    assert Pool.objects.filter(name="default").exists()
    name = next(iter(declared))
    pause_job(Job.objects.get(name=name).pk)
    assert step(sync, leading) == 0  # equal declarations write nothing
    job = Job.objects.get(name=name)
    assert (job.enabled, job.revision) == (False, 2)
    Job.objects.filter(name=name).update(pool="elsewhere")
    assert step(sync, leading) == 1  # code's own job follows the code
    Job.objects.filter(name=name).update(pool="elsewhere", source="admin")
    assert step(sync, leading) == 0  # an adopted one does not


def test_the_leader_does_not_wait_for_people_who_edit_jobs_of_the_code(leading: Fence) -> None:
    """An edit left open in a console held up the job's sync; that ran into a timeout, and the leader stepped down."""
    step(Sync(timezone.now()), leading)
    name = next(iter(registry.jobs()))
    editor = connect("default", name="editor")
    with transaction(editor) as cursor:
        cursor.execute("UPDATE cronoq_job SET pool = 'edited' WHERE name = %s", (name,))
        cursor.execute("UPDATE cronoq_pool SET paused = true")
        assert step(Sync(timezone.now()), leading) == 0
    editor.close()
    assert step(Sync(timezone.now()), leading) == 1


def test_code_that_started_earlier_does_not_overwrite_newer_declarations(leading: Fence) -> None:
    """Old and new code side by side took turns at writing the job, once a poll each."""
    now = timezone.now()
    step(Sync(now), leading)
    name = next(iter(registry.jobs()))
    Job.objects.filter(name=name).update(pool="newer-code", declared_at=now + timedelta(seconds=5))
    assert step(Sync(now), leading) == 0
    assert Job.objects.get(name=name).pool == "newer-code"


def test_a_job_gone_from_all_code_is_disabled_not_deleted(leading: Fence) -> None:
    step(Sync(timezone.now()), leading)
    Job.objects.create(name="gone", script="tests.tasks.add", kind="manual", source="code", declared_at=timezone.now())
    step(Sync(timezone.now()), leading)
    gone = Job.objects.get(name="gone")
    assert gone.enabled is False
    assert JobRevision.objects.filter(job=gone).latest("number").changed_by == "cronoq:sync"


def test_prune_removes_what_is_older_than_its_retention(leading: Fence) -> None:
    old, fresh = timezone.now() - timedelta(days=10), timezone.now()
    for finished in (old, fresh):
        run = Run.objects.create(trigger="enqueue", script="s", status=Status.SUCCEEDED, finished_at=finished)
        Attempt.objects.create(run=run, number=1, claim=1, started_at=finished, ended_at=finished, outcome="failed")
    kept = Run.objects.create(trigger="enqueue", script="s", status=Status.FAILED, reason="error", finished_at=old)
    step(Prune(), leading)
    assert set(Run.objects.values_list("finished_at", flat=True)) == {fresh, kept.finished_at}
    assert Attempt.objects.count() == 1


def test_a_replaced_leader_writes_nothing(leading: Fence) -> None:
    """Two leaders fired every entry for days: nothing in the database refused the one that had been replaced."""
    job = make_job()
    step(Plan(), leading)
    make_due(job, ago=timedelta(seconds=1))
    leading.election.session.execute("SELECT pg_advisory_unlock_all()")  # as if its lock had been lost, unnoticed
    successor = Election("default", Identity())
    fence = successor.try_to_lead()
    assert fence is not None
    assert fence.term.epoch == leading.term.epoch + 1
    with pytest.raises(Fenced):
        step(Fire(), leading)
    assert not Run.objects.exists()
    assert step(Fire(), fence) == 1
    successor.close()


def test_an_epoch_given_out_again_does_not_revive_the_old_leader(leading: Fence) -> None:
    """A lossy failover set the epoch back, and the next leader got the number of the one before it."""
    Leader.objects.update(term=Identity().id)
    with pytest.raises(Fenced), leading.transaction():
        pass


def test_the_lock_excludes_a_second_candidate(leading: Fence, wait_until: Callable[..., Any]) -> None:
    second = Election("default", Identity())
    assert second.try_to_lead() is None
    leading.election.close()
    wait_until(second.try_to_lead, what="the server notices that the first session has ended")
    second.close()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("args = '7'", "args: must be a JSON list"),
        ("kwargs = '[]'", "kwargs: must be a JSON object"),
        ("kind = 'cron', cron = '0 0 30 2 *'", "cron: "),
        ("kind = 'cron', cron = 'nonsense'", "cron: "),
        ("kind = 'cron', cron = '@daily', timezone = 'localtime'", "timezone: "),
    ],
)
def test_a_planted_job_is_set_aside_and_in_nobodys_way(leading: Fence, columns: str, reason: str) -> None:
    bad, good = make_job("bad"), make_job("good")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE cronoq_job SET {columns}, starts_at = now() WHERE name = 'bad'")
    step(Plan(), leading)
    assert reason in JobState.objects.get(job=bad).error
    assert JobState.objects.get(job=good).next_run_at is not None
    assert {job.name for job in list_jobs()} == {"bad", "good"}  # the list is still readable
    upsert_job("bad", args=[1], kwargs={}, kind="manual", timezone="UTC")
    step(Plan(), leading)
    assert JobState.objects.get(job=bad).error == ""


def slots_of(job: Job) -> list[tuple[str, str]]:
    """Status and reason of a job's runs, the oldest slot first."""
    return list(Run.objects.filter(job=job).order_by("scheduled_for").values_list("status", "reason"))


def fire_late(job: Job, leading: Fence, *, slots: int) -> None:
    """Let so many slots of a ten-second job pass, and fire."""
    step(Plan(), leading)
    make_due(job, ago=timedelta(seconds=10 * slots - 5))
    step(Fire(), leading)


def end(*ids: Any) -> None:
    with connection.cursor() as cursor:
        worker = uuid7()
        claimed = runs.claim_runs(cursor, worker=worker, pool="default", limit=99, lease=timedelta(seconds=9))
        done = [one for one in claimed if not ids or one.id in ids]
        succeeded = [
            runs.Completion(id=one.id, claim=one.claim, outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED)
            for one in done
        ]
        runs.complete_runs(cursor, succeeded)


@pytest.mark.parametrize("columns", [{"overlap": "queue"}, {"overlap": "skip"}])
def test_runs_wait_until_their_job_has_room(leading: Fence, columns: dict[str, Any]) -> None:
    job = make_job(misfire="all", concurrency=2, **columns)
    fire_late(job, leading, slots=6)
    statuses = [status for status, _ in slots_of(job)]
    assert statuses[:2] == ["queued", "queued"]
    assert statuses.count("blocked") == (4 if columns["overlap"] == "queue" else 3)  # the newest, on time, is skipped
    assert step(Admit(), leading) == 0
    end()
    assert step(Admit(), leading) == 2
    assert [status for status, _ in slots_of(job)][:4] == ["succeeded", "succeeded", "queued", "queued"]
    assert step(Admit(), leading) == 0


def test_the_newest_replaces_the_others_waiting_and_running(leading: Fence) -> None:
    job = make_job(overlap="replace")
    fire_late(job, leading, slots=1)
    with connection.cursor() as cursor:
        (running,) = runs.claim_runs(cursor, worker=uuid7(), pool="default", limit=1, lease=timedelta(seconds=9))
    make_due(job, ago=timedelta(seconds=1))
    step(Fire(), leading)
    make_due(job, ago=timedelta(0))
    step(Fire(), leading)
    assert [status for status, _ in slots_of(job)] == ["running", "blocked", "blocked"]
    stage = Admit()
    assert step(stage, leading) == stage.batch
    assert step(stage, leading) == 0
    assert slots_of(job) == [("running", ""), ("cancelled", "replaced"), ("blocked", "")]
    assert Run.objects.get(pk=running.id).cancel_requested_at is not None
    with connection.cursor() as cursor:
        cancelled = runs.Completion(
            id=running.id, claim=running.claim, outcome=Outcome.CANCELLED, status=Status.CANCELLED, reason="requested"
        )
        runs.complete_runs(cursor, [cancelled])
    assert step(stage, leading) == 1
    assert [status for status, _ in slots_of(job)] == ["cancelled", "cancelled", "queued"]


def test_what_waits_for_room_is_cancelled_with_its_job(leading: Fence) -> None:
    job = make_job(overlap="queue", misfire="all")
    fire_late(job, leading, slots=3)
    job.delete()
    step(Plan(), leading)
    assert set(Run.objects.values_list("status", "reason")) == {("cancelled", "job_deleted")}
    assert step(Admit(), leading) == 0


def test_a_job_is_paused_by_its_failure_and_resumed_as_if_that_had_not_been(leading: Fence) -> None:
    job, other = make_job(pause_on_failure=True), make_job("other")
    for one in (job, other):
        fire_late(one, leading, slots=1)
    assert step(Pause(), leading) == 0
    with connection.cursor() as cursor:
        claimed = runs.claim_runs(cursor, worker=uuid7(), pool="default", limit=9, lease=timedelta(seconds=9))
        failed = [
            runs.Completion(
                id=one.id, claim=one.claim, outcome=Outcome.FAILED, status=Status.FAILED, reason=Reason.ERROR
            )
            for one in claimed
        ]
        runs.complete_runs(cursor, failed)
    assert step(Pause(), leading) == 1
    job.refresh_from_db()
    other.refresh_from_db()
    assert (job.enabled, other.enabled) == (False, True)
    assert JobRevision.objects.filter(job=job).first().changed_by == "cronoq:pause_on_failure"  # type: ignore[union-attr]
    resume_job(job.pk)
    assert step(Pause(), leading) == 0


@pytest.mark.parametrize(
    ("name", "index", "params"),
    [
        ("due_jobs", "cronoq_job_state_due", {}),
        ("stage_runs", "cronoq_run_scheduled", {}),
        ("admit_runs", "cronoq_run_blocked", {}),
        ("replaced_runs", "cronoq_run_job_open", {}),
        ("pause_failing", "cronoq_job_pausing", {}),
        ("look", "cronoq_job_state_due", {"epoch": 1, "term": uuid7()}),
        ("disable_gone_jobs", "cronoq_job_of_code", {"silence": timedelta(seconds=30)}),
        ("plan_known_again", "cronoq_job_state_error", {"known": [], "silence": timedelta(seconds=30)}),
    ],
)
def test_a_round_with_nothing_to_do_reads_no_whole_table(
    leading: Fence, name: str, index: str, params: dict[str, Any]
) -> None:
    """With 100,000 jobs, each tick read all their states, since clock_timestamp() is volatile and used no index."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_job (id, name, script, args, kwargs, kind, cron) "
            "SELECT gen_random_uuid(), n::text, 'x', '[]', '{}', 'cron', '* * * * *' FROM generate_series(1, 3000) AS n"
        )
        cursor.execute(
            "INSERT INTO cronoq_job_state (job_id, partition, planned_revision, next_run_at, epoch) "
            "SELECT id, 0, 1, clock_timestamp() + interval '1 day', 1 FROM cronoq_job"
        )
        later = timezone.now() + timedelta(days=1)
        runs.insert_runs(cursor, [runs.NewRun(script="x", due_at=later) for _ in range(3000)])
        cursor.execute("ANALYZE cronoq_job, cronoq_job_state, cronoq_run")
        values = {"limit": 500, "now": timezone.now(), **params}
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement(name)}", values)
        (found,) = cursor.fetchone()
    plan = json.dumps(found, indent=1)
    assert index in plan
    for table in ("cronoq_job", "cronoq_job_state", "cronoq_run"):
        assert not re.search(rf'"Seq Scan", [^{{}}]*"Relation Name": "{table}"', plan), plan
