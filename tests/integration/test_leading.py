"""Leading, in this process: sessions, the watchdog, the fence's reasons, recovery, signals, what status says."""

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from cronoq_django.errors import CannotLead, Fenced, Unavailable
from cronoq_django.leader.election import Election, Identity
from cronoq_django.leader.fence import Fence
from cronoq_django.leader.loop import Leader
from cronoq_django.leader.recovery import Recovery
from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages.fire import Fire
from cronoq_django.leader.stages.plan import Plan
from cronoq_django.leader.stages.quarantine import Quarantine
from cronoq_django.leader.stages.sync import Sync
from cronoq_django.models import Job, JobState, LeaderTerm, Run, Worker
from cronoq_django.models import Stage as StageRow
from cronoq_django.ops.status import status
from cronoq_django.signals import leadership_gained, leadership_lost
from cronoq_django.store import leadership
from cronoq_django.store.jobs import upsert_job
from cronoq_django.store.leadership import Ended
from cronoq_django.store.runs import NewRun, insert_runs
from cronoq_django.store.session import Session, changes_backend, connect, listen, transaction
from cronoq_django.store.watchdog import Watchdog

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = timedelta(seconds=1)


def step(stage: Stage, fence: Fence) -> int:
    with fence.transaction() as tx:
        return stage.step(tx)


@contextmanager
def changed(table: str, **columns: Any) -> Iterator[None]:
    """By raw SQL, as somebody in a console does it."""
    with connection.cursor() as cursor:
        names = ", ".join(f"{name} = %s" for name in columns)
        cursor.execute(f"UPDATE {table} SET {names}", list(columns.values()))
    yield


@pytest.fixture
def run_leader() -> Iterator[Callable[[], Leader]]:
    """A leader in a thread, as embedding code has it."""
    started: list[tuple[Leader, threading.Thread]] = []

    def start() -> Leader:
        leader = Leader("default")
        thread = threading.Thread(target=leader.run)
        thread.start()
        started.append((leader, thread))
        return leader

    yield start
    for leader, thread in started:
        leader.stop()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What the signals said."""
    heard: list[tuple[str, dict[str, Any]]] = []

    def gained(**kwargs: Any) -> None:
        heard.append(("gained", kwargs))
        raise RuntimeError("a receiver that fails")

    def lost(**kwargs: Any) -> None:
        heard.append(("lost", kwargs))

    leadership_gained.connect(gained)
    leadership_lost.connect(lost)
    yield heard
    leadership_gained.disconnect(gained)
    leadership_lost.disconnect(lost)


def test_embedding_code_hears_of_gain_and_loss_and_can_ask(
    run_leader: Callable[[], Leader], told: list[tuple[str, dict[str, Any]]], wait_until: Callable[..., Any]
) -> None:
    leader = run_leader()
    wait_until(lambda: leader.is_leading and told)
    assert [(what, said["epoch"]) for what, said in told] == [("gained", 1)]
    # Signals are told before the term is written; one that is usurped in between has no row to end.
    wait_until(lambda: LeaderTerm.objects.filter(epoch=1).exists())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cronoq_leader SET epoch = 7, term = gen_random_uuid(), host = 'usurper'")
    wait_until(lambda: len(told) > 1)
    assert (told[1][0], told[1][1]["epoch"], told[1][1]["leader"]) == ("lost", 1, leader)
    assert told[1][1]["reason"] == "epoch 1 is over: usurper took over with epoch 7"
    wait_until(lambda: leader.is_leading and len(told) > 2, what="it stands by again, and leads in a new term")
    assert (told[2][0], told[2][1]["epoch"]) == ("gained", 8)
    # Its own end is written down by itself, a moment later.
    wait_until(lambda: LeaderTerm.objects.filter(epoch=1).exclude(ended="").exists())
    assert LeaderTerm.objects.get(epoch=1).ended == told[1][1]["reason"]
    leader.stop()
    wait_until(lambda: len(told) == 4)
    assert (told[3][0], told[3][1]["reason"]) == ("lost", "resigned: the process was stopped")
    assert not leader.is_leading


def test_a_transaction_on_another_backend_than_the_one_with_the_lock_is_fenced(leading: Fence) -> None:
    """Behind a pooler, work and lock went to different backends; nothing failed, and two leaders led for 19 days."""
    with changed("cronoq_leader", backend_pid=1), pytest.raises(Fenced, match="another backend"):
        step(Plan(), leading)


def test_without_the_lock_no_epoch_is_raised(leading: Fence) -> None:
    session = connect("default", name="test", settings={})
    try:
        with pytest.raises(CannotLead, match="LEADER_DSN"):
            leadership.take_over(session, coordinator=uuid4(), host="h", ttl=SECOND)
    finally:
        session.close()
    step(Plan(), leading)


def test_who_holds_the_leader_row_is_named(leading: Fence, caplog: pytest.LogCaptureFixture) -> None:
    leading.election.close()  # type: ignore[attr-defined]
    console = connect("default", name="somebody's console")
    election = Election("default", Identity())
    try:
        with transaction(console) as cursor:
            cursor.execute("SELECT FROM cronoq_leader FOR UPDATE")
            assert election.try_to_lead() is None
            pid = console.info.backend_pid
        assert f"somebody's console in {schema()} (process {pid}" in caplog.text
        assert election.try_to_lead() is not None
    finally:
        election.close()
        console.close()


def schema() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return str(cursor.fetchone()[0])


def test_a_pooler_is_recognized_by_the_backend_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    session = connect("default", name="test", settings={"statement_timeout": "30s"})
    try:
        assert not changes_backend(session)
        assert not session.is_pooled
        assert session.prepare_threshold == 5
        monkeypatch.setattr("cronoq_django.store.session._backend", lambda cursor: 7)
        monkeypatch.setattr("cronoq_django.leader.election.changes_backend", lambda session: True)
        pooled = connect("default", name="test", settings={"statement_timeout": "30s"})
        assert pooled.is_pooled
        listen(pooled, "leader")
        assert pooled.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)
        assert pooled.execute("SHOW statement_timeout").fetchone() == ("0",)
        assert pooled.prepare_threshold is None
        pooled.close()
        with pytest.raises(CannotLead):
            Election("default", Identity())
    finally:
        session.close()


def test_a_setting_that_the_servers_platform_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    session = connect("default", name="test", settings={"client_connection_check_interval": "nonsense"})
    session.close()
    with pytest.raises(Exception, match="statement_timeout"):
        connect("default", name="test", settings={"statement_timeout": "nonsense"})


def test_a_server_that_owes_an_answer_for_too_long_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watchdog = Watchdog(ours.fileno(), lambda: 0.3)
        ours.settimeout(1)
        with pytest.raises(TimeoutError):
            ours.recv(1)  # nothing was asked, so nothing is missing
        watchdog.asked_at = time.monotonic()
        assert ours.recv(1) == b""  # waits until it is shut down
    assert "has not answered" in caplog.text


def test_the_watchdog_ends_with_its_session(wait_until: Callable[..., Any]) -> None:
    before = threading.active_count()
    session = connect("default", name="test", patience=lambda: 60.0)
    assert threading.active_count() == before + 1
    session.close()
    wait_until(lambda: threading.active_count() == before)


def test_a_statement_without_an_answer_ends_when_patience_does() -> None:
    session = connect("default", name="test", patience=lambda: 0.5)
    begun = time.monotonic()
    with pytest.raises(Unavailable), transaction(session) as cursor:
        cursor.execute("SELECT pg_sleep(20)")
    assert time.monotonic() < begun + 5
    assert session.closed


def test_the_leader_finds_the_clusters_schema_with_an_address_of_its_own(settings: Any) -> None:
    """A DSN without search_path led the cluster in `public`, if there was one."""
    params = {
        key: value
        for key, value in connection.get_connection_params().items()
        if key in ("host", "port", "user", "dbname") and value
    }
    settings.CRONOQ = {**settings.CRONOQ, "LEADER_DSN": " ".join(f"{key}={value}" for key, value in params.items())}
    election = Election("default", Identity())
    try:
        assert election.try_to_lead() is not None
        assert election.session.execute("SELECT current_schemas(false)").fetchone() == ([schema()],)
    finally:
        election.close()


def test_a_job_whose_script_nobody_knows_is_set_aside_until_somebody_does(leading: Fence) -> None:
    job = upsert_job("later", script="tests.tasks.add", args=[1], kind="every", every=SECOND)
    with changed("cronoq_job", script="somewhere.deployed_later"):
        step(Plan(), leading)
    state = JobState.objects.get(job=job)
    assert state.next_run_at is None
    assert state.error.startswith("script: unknown script 'somewhere.deployed_later'")
    sync = Sync(timezone.now())
    step(sync, leading)
    step(Plan(), leading)
    state.refresh_from_db()
    assert state.error
    Worker.objects.create(
        id=uuid4(), name="w", host="h", process_id=1, version="1", pools={}, concurrency=1, status="online",
        scripts=["somewhere.deployed_later"],
    )  # fmt: skip
    step(sync, leading)
    assert step(Plan(), leading) == 1
    state.refresh_from_db()
    assert state.error == ""
    assert state.next_run_at is not None


def test_a_due_job_whose_script_went_away_is_set_aside_not_fired(leading: Fence) -> None:
    job = upsert_job("gone", script="tests.tasks.add", args=[1], kind="every", every=SECOND)
    good = upsert_job("good", script="tests.tasks.add", args=[1], kind="every", every=SECOND)
    step(Plan(), leading)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE cronoq_job_state SET next_run_at = next_run_at - interval '1 hour'")
        cursor.execute("DELETE FROM cronoq_job_change")
        cursor.execute("ALTER TABLE cronoq_job DISABLE TRIGGER USER")
        cursor.execute("UPDATE cronoq_job SET script = 'no.such' WHERE id = %s", [job.pk])
        cursor.execute("ALTER TABLE cronoq_job ENABLE TRIGGER USER")
    step(Fire(), leading)
    assert set(Run.objects.values_list("job_name", flat=True)) == {good.name}
    assert JobState.objects.get(job=job).error.startswith("script: unknown script 'no.such'")


@pytest.mark.parametrize(("column", "broken", "mended"), [("args", '{"a": 1}', "[1]"), ("kwargs", "[1]", "{}")])
def test_mended_arguments_put_a_job_back_without_the_slots_it_missed(
    leading: Fence, column: str, broken: str, mended: str
) -> None:
    job = upsert_job("mended", script="tests.tasks.add", args=[1], kind="every", every=SECOND)
    with changed("cronoq_job", **{column: broken}):
        step(Plan(), leading)
    assert JobState.objects.get(job=job).error.startswith(f"{column}: must be")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_job DISABLE TRIGGER USER")
        cursor.execute("UPDATE cronoq_job SET schedule_changed_at = schedule_changed_at - interval '1 hour'")
        cursor.execute("ALTER TABLE cronoq_job ENABLE TRIGGER USER")
    with changed("cronoq_job", **{column: mended}):
        before = timezone.now()
        assert step(Plan(), leading) == 1
    state = JobState.objects.get(job=job)
    assert state.error == ""
    assert state.next_run_at is not None
    assert state.next_run_at > before


@pytest.mark.parametrize(("args", "kwargs"), [('{"a": 1}', "{}"), ("[]", "[]"), ("1", "{}"), ("null", "{}")])
def test_a_run_that_nobody_could_decode_is_quarantined(leading: Fence, args: str, kwargs: str) -> None:
    with connection.cursor() as cursor:
        due_at = timezone.now() + timedelta(days=30)
        bad, later = insert_runs(
            cursor,
            [
                NewRun(script="tests.tasks.add", args=args, kwargs=kwargs),
                NewRun(script="tests.tasks.add", args=args, kwargs=kwargs, due_at=due_at),
            ],
        )
        (good,) = insert_runs(cursor, [NewRun(script="tests.tasks.add", args="[1]")])
    assert step(Quarantine(), leading) == 2
    assert step(Quarantine(), leading) == 0
    for run in Run.objects.filter(pk__in=[bad, later]):
        assert (run.status, run.reason) == ("failed", "quarantined")
        assert "must be a JSON list" in run.error
    assert Run.objects.get(pk=good).status == "queued"


def test_quarantine_looks_at_an_index_that_ordinary_runs_never_enter(leading: Fence) -> None:
    from cronoq_django.store.statements import statement

    with connection.cursor() as cursor:
        insert_runs(cursor, [NewRun(script="x") for _ in range(2000)])
        cursor.execute("ANALYZE cronoq_run")
        cursor.execute("EXPLAIN " + statement("quarantine_runs"), {"error": "", "limit": 500, "now": None})
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "cronoq_run_undecodable" in plan


class Recovering(Stage):
    name = "recovering"
    recovers = "things found"

    def step(self, tx: leadership.FencedTransaction) -> int:
        return 0


def test_what_a_term_recovers_is_counted_until_nothing_more_is_found(leading: Fence) -> None:
    with connection.cursor() as cursor:
        upsert_job("unplanned", script="tests.tasks.add", args=[1], kind="manual")
        cursor.execute("DELETE FROM cronoq_job_change")
    stage = Recovering()
    recovery = Recovery(leading, Identity(), last=Ended(), stages=[stage])
    recovery.ran(stage, rows=500, again=True)
    recovery.ran(stage, rows=3, again=False)
    recovery.ran(stage, rows=99, again=False)  # ordinary work by now
    with leading.transaction() as tx:
        recovery.note(tx)
    assert LeaderTerm.objects.get().recovered == {"jobs to plan": 1, "things found": 503}


def test_a_failing_stage_comes_later_each_time_and_what_it_said_is_kept_until_noted() -> None:
    stage = Recovering()
    stage.prompt = True
    work = {stage.name}
    assert stage.is_due(work)
    assert not stage.is_due({"another"})
    pauses = []
    for _ in range(8):
        stage.ran(rows=0, duration=SECOND, error="broken", again=False)
        assert not stage.is_due(work)
        pauses.append(round(stage.seconds_until_due(), 1))
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0]
    stage.ran(rows=2, duration=SECOND / 2, error="", again=False)
    assert stage.is_due(work)
    assert stage.last is not None
    assert (stage.last.rows, stage.last.duration, stage.last.error) == (2, SECOND, "broken")


def test_status_tells_of_the_leader_and_its_stages(
    run_leader: Callable[[], Leader], wait_until: Callable[..., Any]
) -> None:
    leader = run_leader()
    wait_until(lambda: StageRow.objects.filter(name="prune").exists())
    standby = run_leader()
    wait_until(lambda: status()["standbys"])
    StageRow.objects.filter(name="prune").update(error="it broke")
    found = status()
    assert found["leader"]["is_alive"]
    assert found["leader"]["term_age"] > timedelta()
    assert [one["process_id"] for one in found["standbys"]] == [found["leader"]["process_id"]]
    said = io.StringIO()
    call_command("cronoq_status", stdout=said)
    text = said.getvalue()
    assert "epoch 1, for 0:00:0" in text
    assert "last heartbeat" in text
    assert "Standby   " in text
    assert "ERROR: it broke" in text
    standby.stop()
    leader.stop()
    wait_until(lambda: not status()["leader"]["is_alive"] and not status()["standbys"])
    with pytest.raises(SystemExit):
        call_command("cronoq_status", stdout=said)
    assert "NOBODY LEADS" in said.getvalue()
    assert "resigned" in said.getvalue()


def test_a_resigned_leaders_lock_is_free_when_the_standbys_hear_of_it(leading: Fence) -> None:
    standby = Election("default", Identity())
    try:
        assert standby.try_to_lead() is None
        leading.election.resign()  # type: ignore[attr-defined]
        begun = time.monotonic()
        standby.wait(60)
        assert time.monotonic() < begun + 5
        assert standby.try_to_lead() is not None
        with pytest.raises(Fenced, match="took over with epoch 2"):
            step(Plan(), leading)
    finally:
        standby.close()


def test_sessions_are_ours(leading: Fence) -> None:
    assert isinstance(leading.election.session, Session)  # type: ignore[attr-defined]
    assert leading.is_trusted
    leading.election.session.close()  # type: ignore[attr-defined]
    assert not leading.is_trusted
    assert Job.objects.count() == 0
