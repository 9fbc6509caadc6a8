"""Workers are killed, stopped and cut; every run ends once, under its last owner."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
import pytest
from django.db import connection, transaction
from django.test import Client

from cronoq_django.models import Attempt, Run, RunDetail, Worker
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.store.controls import cancel_runs
from cronoq_django.store.session import connect
from cronoq_django.store.session import transaction as session_transaction
from cronoq_django.tasks.enqueue import enqueue_many
from tests import tasks

from .conftest import Fleet, url_of
from .runs import finished, lines, status_of

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


def test_all_kinds_of_endings(fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    fleet.leader()
    fleet.worker()
    cases = {
        "sum": (tasks.add.enqueue(1, b=2), "succeeded", "", 3),
        "async": (tasks.add_async.enqueue(3, 4), "succeeded", "", 7),
        "context": (tasks.attempt_of.enqueue(), "succeeded", "", 1),
        "third": (tasks.succeed_on.enqueue(3), "succeeded", "", 3),
        "snoozed": (tasks.snooze_once.enqueue(str(tmp_path / "snoozed")), "succeeded", "", "awake"),
        "failing": (tasks.fail.enqueue("always"), "failed", "error", None),
        "discarded": (tasks.discard.enqueue(), "failed", "discarded", None),
        "endless": (tasks.never_return.enqueue(), "failed", "timeout", None),
        "unstorable": (tasks.unstorable.enqueue(), "failed", "unstorable", None),
        "retry": (tasks.retry_after.using(max_attempts=2).enqueue(0.1), "failed", "error", None),
    }
    wait_until(finished(*(case[0] for case in cases.values())))
    for name, (result, status, reason, value) in cases.items():
        run = Run.objects.get(pk=result.id)
        assert (name, run.status, run.reason, run.result) == (name, status, reason, value), run.error
        result.refresh()
        assert result.is_finished
    third = cases["third"][0]
    assert third.attempts == 3
    assert [error.exception_class for error in third.errors] == [ConnectionError, ConnectionError]
    assert [a.outcome for a in Attempt.objects.filter(run_id=third.id)] == ["failed", "failed", "succeeded"]
    assert Run.objects.get(pk=cases["failing"][0].id).attempts == 3
    assert Run.objects.get(pk=cases["snoozed"][0].id).attempts == 1
    assert "always" in cases["failing"][0].errors[-1].traceback
    assert Attempt.objects.get(run_id=cases["endless"][0].id).outcome == Outcome.TIMED_OUT


def test_a_run_whose_worker_is_killed_is_retried_by_another(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path, admin_client: Client
) -> None:
    """Runs stayed "in progress" for weeks after a machine had vanished."""
    path = tmp_path / "held"
    fleet.leader()
    first = fleet.worker()
    result = tasks.hold.enqueue(str(path), 2)
    wait_until(lambda: Run.objects.filter(pk=result.id, started_at__isnull=False).exists())
    first_owner = Run.objects.get(pk=result.id).worker_id
    first.kill()  # supervisor and all
    fleet.worker()
    wait_until(finished(result))
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.result, run.attempts) == (Status.SUCCEEDED, "held", 2)
    first_attempt, second_attempt = Attempt.objects.filter(run=run).order_by("id")
    assert (first_attempt.outcome, first_attempt.worker_id) == (Outcome.LOST, first_owner)
    assert (second_attempt.outcome, second_attempt.worker_id) == (Outcome.SUCCEEDED, run.worker_id)
    assert first_owner != run.worker_id
    result.refresh()
    assert result.worker_ids == [str(first_owner), str(run.worker_id)]
    page = admin_client.get(f"/admin/cronoq/run/{run.pk}/change/").content.decode()
    assert "worker lost" in page
    assert page.index("worker lost") != page.index("succeeded")
    assert all(str(Worker.objects.get(pk=owner)) in page for owner in (first_owner, run.worker_id))


def test_a_dead_childs_runs_are_taken_back_at_once_and_the_child_replaced(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "held"
    worker = fleet.worker(
        CRONOQ_LEASE="300"
    )  # no leader, and no lease that could run out: only the supervisor can help
    result = tasks.hold.enqueue(str(path), 0.5)
    wait_until(lambda: Run.objects.filter(pk=result.id, started_at__isnull=False).exists())
    os.kill(int(lines(path)[0].split()[0]), signal.SIGKILL)
    wait_until(finished(result))
    assert status_of(result) == Status.SUCCEEDED
    assert Worker.objects.filter(status="lost").count() == 1
    assert worker.is_alive


def test_a_poison_run_ends_as_lost_after_its_attempts(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """A task that exhausts memory killed worker after worker for 17 hours, because a crash was no attempt."""
    fleet.worker("--pool", "default=1")
    result = tasks.leave_a_mess.using(max_attempts=2).enqueue("kill")
    wait_until(finished(result))
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.LOST, 2)


def test_sigterm_lets_running_work_end_and_gives_the_rest_back(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "held"
    worker = fleet.worker("--pool", "default=2")
    held = [tasks.hold.enqueue(str(path), 1) for _ in range(2)]
    waiting = [tasks.add.enqueue(n) for n in range(5)]
    wait_until(lambda: len(lines(path)) == 2)
    assert worker.stop() == 0
    assert [status_of(result) for result in held] == [Status.SUCCEEDED] * 2
    assert {status_of(result) for result in waiting} == {Status.QUEUED}
    assert not Run.objects.filter(attempts__gt=1).exists()
    assert Worker.objects.get().status == "stopped"


def test_work_that_outlives_the_grace_goes_back_uncharged(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "held"
    worker = fleet.worker(CRONOQ_GRACE="0.5")
    result = tasks.hold.enqueue(str(path), 60)
    wait_until(lambda: lines(path))
    assert worker.stop() == 0
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.attempts) == (Status.QUEUED, 0)
    assert "shutdown" in run.error
    assert Attempt.objects.get(run=run).outcome == Outcome.RELEASED


def test_children_end_with_their_supervisor(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    worker = fleet.worker("--processes", "2", "--pool", "default=1")
    wait_until(lambda: Worker.objects.filter(status="online").count() == 2)
    children = psutil.Process(worker.pid).children(recursive=True)
    assert len(children) >= 2
    worker.signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=5)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


def test_cut_sessions_lose_nothing(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """After a database restart, workers stayed subscribed to a dead connection, and work waited for the slow poll."""
    worker = fleet.worker()
    wait_until(finished(tasks.add.enqueue(1)))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'cronoq%' AND application_name LIKE '% in ' || current_schema()"
        )
    results = [tasks.add.enqueue(n) for n in range(20)]
    wait_until(finished(*results))
    assert {status_of(result) for result in results} == {Status.SUCCEEDED}
    assert worker.is_alive


def test_an_enqueue_that_rolls_back_leaves_nothing_and_one_that_commits_runs_once(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    fleet.worker()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        tasks.count_line.enqueue(str(path), "rolled back")
        raise ZeroDivisionError
    with transaction.atomic():
        committed = tasks.count_line.enqueue(str(path), "committed")
        assert status_of(committed) == Status.QUEUED
        assert not lines(path)
    wait_until(finished(committed))
    assert lines(path) == ["committed"]
    assert Run.objects.count() == 1


def test_a_cancel_reaches_running_work(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    fleet.worker()
    result = tasks.never_return.using(timeout=60).enqueue()
    wait_until(lambda: status_of(result) == Status.RUNNING)
    done = cancel_runs([Run.objects.get().pk], actor="ada")
    assert (done.cancelled, done.requested, done.ended) == (0, 1, 0)
    wait_until(finished(result))
    assert status_of(result) == Status.CANCELLED


def test_a_task_cannot_spoil_its_worker_for_the_next(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    worker = fleet.worker("--pool", "default=1")
    harmless = ["begin", "broken", "close", "zone"]
    pairs = [
        (kind, tasks.leave_a_mess.enqueue(kind), tasks.surroundings.enqueue())
        for kind in ["exit", "interrupt", "cancelled", "silent", *harmless]
    ]
    wait_until(finished(*(result for _, *both in pairs for result in both)))
    for kind, mess, after in pairs:
        assert (kind, status_of(mess)) == (kind, Status.SUCCEEDED if kind in harmless else Status.FAILED)
        assert (kind, Run.objects.get(pk=after.id).result) == (kind, ["UTC", "en", "False"])
    assert Worker.objects.count() == 1  # the same process throughout
    assert worker.is_alive


def test_unknown_scripts_and_broken_arguments_are_quarantined_and_not_in_the_way(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    """After a task was renamed, its rows raised in the fetch, and all worker threads died of them."""
    bad = [
        Run.objects.create(trigger="enqueue", status="queued", script="tests.tasks.gone"),
        Run.objects.create(trigger="enqueue", status="queued", script="os.system", args=["true"]),
        Run.objects.create(trigger="enqueue", status="queued", script="tests.tasks.add", args=7),
        Run.objects.create(trigger="enqueue", status="queued", script="tests.tasks.add", kwargs={"c": 1}),
    ]
    good = [tasks.add.enqueue(n) for n in range(20)]
    fleet.worker()
    wait_until(finished(*good))
    wait_until(lambda: not Run.objects.filter(finished_at__isnull=True).exists())
    for run in bad:
        run.refresh_from_db()
        assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.QUARANTINED, 0)
        assert run.error
    assert Run.objects.filter(status=Status.SUCCEEDED).count() == 20


def test_an_outcome_that_the_database_refuses_costs_no_other_its_own(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    """A result that could not be stored made the write fail that was to end the run, again and again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE cronoq_run ADD CONSTRAINT planted CHECK (result::text IS DISTINCT FROM '\"poison\"')"
        )
    try:
        results = [tasks.echo.enqueue(value) for value in ["good"] * 5 + ["poison"] + ["good"] * 5]
        worker = fleet.worker()
        wait_until(finished(*results))
        assert worker.stop() == 0
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE cronoq_run DROP CONSTRAINT planted")
    assert Run.objects.filter(status=Status.SUCCEEDED).count() == 10
    run = Run.objects.get(status=Status.FAILED)
    assert (run.reason, run.attempts) == (Reason.UNSTORABLE, 1)
    assert "planted" in run.error
    assert Worker.objects.count() == 1


def test_rows_that_are_busy_when_they_end_cost_nobody_his_place(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """A renewal held all rows of a worker just then: it claimed as many again, and what found no entry in its ledger
    was executed by nobody."""
    path = tmp_path / "lines"
    results = enqueue_many([tasks.count_line.bind(str(path), str(n)) for n in range(2000)])
    fleet.worker()
    console = connect("default", name="console")
    while not finished(*results[-1:])():
        with session_transaction(console) as cursor:
            cursor.execute("SELECT FROM cronoq_run WHERE status = 'running' FOR NO KEY UPDATE SKIP LOCKED")
            time.sleep(0.2)
        time.sleep(0.05)
    console.close()
    wait_until(finished(*results))
    assert sorted(lines(path), key=int) == [str(n) for n in range(2000)]
    assert set(Run.objects.values_list("status", "attempts")) == {(Status.SUCCEEDED, 1)}


def test_a_task_that_asks_for_nonsense_fails_instead_of_staying(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    fleet.worker()
    results = [tasks.snooze_for.enqueue(value) for value in (-1, 1e18, "soon", None)]
    wait_until(finished(*results))
    assert {status_of(result) for result in results} == {Status.FAILED}


def test_a_locked_worker_row_does_not_cost_the_worker_its_leases(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """Somebody had begun to change a worker's row; its heartbeat waited, and the renewal of its leases with it."""
    fleet.leader()
    fleet.worker()
    result = tasks.hold.enqueue(str(tmp_path / "held"), 7)
    wait_until(lambda: status_of(result) == Status.RUNNING)
    console = connect("default", name="console")
    with session_transaction(console) as cursor:
        cursor.execute("SELECT FROM cronoq_worker FOR UPDATE")
        wait_until(finished(result))
    console.close()
    assert len(lines(tmp_path / "held")) == 2
    assert Run.objects.get(pk=result.id).attempts == 1


def test_tables_that_a_deploy_changes_under_it_do_not_cost_a_worker_its_runs(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """A column was renamed for two seconds. What was executing lost its owner, and was executed again."""
    fleet.leader()
    worker = fleet.worker()
    result = tasks.hold.enqueue(str(tmp_path / "held"), 5)
    wait_until(lambda: status_of(result) == Status.RUNNING)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_run RENAME COLUMN lease_expires_at TO renamed")
    wait_until(lambda: "UndefinedColumn" in worker.output)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_run RENAME COLUMN renamed TO lease_expires_at")
    wait_until(finished(result))
    assert len(lines(tmp_path / "held")) == 2
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.attempts) == (Status.SUCCEEDED, 1)
    assert Worker.objects.count() == 1


def test_a_stop_signal_to_the_whole_group_lets_work_end(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """Service managers signal every process of a service. Children got two signals, and gave up what they executed."""
    path = tmp_path / "held"
    worker = fleet.worker("--pool", "default=1", "--processes", "2")
    results = [tasks.hold.enqueue(str(path), 1.5) for _ in range(2)]
    wait_until(lambda: len(lines(path)) == 2)
    os.killpg(worker.pid, signal.SIGTERM)
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.wait() == 0
    assert [status_of(result) for result in results] == [Status.SUCCEEDED] * 2
    assert len(lines(path)) == 4


def test_timeouts_and_cancels_reach_coroutines(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    fleet.worker()
    late = tasks.sleep_async.using(timeout=0.3, max_attempts=1).enqueue(60)
    unwanted = tasks.sleep_async.enqueue(60)
    wait_until(finished(late))
    run = Run.objects.get(pk=late.id)
    assert (run.status, run.reason) == (Status.FAILED, Reason.TIMEOUT)
    cancel_runs([Run.objects.get(pk=unwanted.id).pk])
    wait_until(finished(unwanted))
    assert status_of(unwanted) == Status.CANCELLED


def test_an_outage_longer_than_the_leases_costs_no_run_its_worker(
    wait_until: Callable[..., Any], fleet: Fleet, tmp_path: Path
) -> None:
    """The database was away for longer than the leases; back again, all that was executing was executed anew."""
    name = f"outage_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    params = connection.get_connection_params()
    server = {key: params[key] for key in ("host", "port", "user", "password") if params.get(key)}
    with psycopg.connect(**server, dbname="postgres", autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {name}")
        settings = {**connection.settings_dict, "NAME": name, "OPTIONS": {"options": "-c search_path=public"}}
        url = url_of(settings)
        assert fleet.command("migrate", "cronoq", DATABASE_URL=url).wait() == 0
        fleet.leader(DATABASE_URL=url)
        fleet.worker(DATABASE_URL=url)
        add = "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status) SELECT gen_random_uuid(), 'enqueue', "
        add += "'tests.tasks.hold', %s, '{}', 'queued' FROM generate_series(1, 3)"
        with psycopg.connect(**server, dbname=name, autocommit=True) as session:
            session.execute(add, [json.dumps([str(tmp_path / "held"), 9])])
        wait_until(lambda: len(lines(tmp_path / "held")) == 3)
        admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        time.sleep(5)  # the outage: longer than the leases of 3 seconds
        admin.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
        with psycopg.connect(**server, dbname=name, autocommit=True) as session:
            ended = "SELECT count(*) FROM cronoq_run WHERE status = 'succeeded' AND attempts = 1"
            wait_until(lambda: session.execute(ended).fetchone() == (3,))
        assert len(lines(tmp_path / "held")) == 6  # each begun once and ended once
        for process in fleet.processes:
            process.kill()
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_progress_and_log_are_seen_while_it_runs(fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    fleet.worker()
    result = tasks.report_and_wait.enqueue(str(tmp_path / "go"))
    wait_until(lambda: RunDetail.objects.filter(run=result.id, progress_done__gt=0).exists())
    seen = RunDetail.objects.get(run=result.id)
    assert (status_of(result), seen.log, seen.progress_total) == ("running", "waiting", 10_000)
    wait_until(lambda: RunDetail.objects.filter(run=result.id, progress_done__gt=seen.progress_done).exists())
    (tmp_path / "go").touch()
    wait_until(finished(result))
    assert status_of(result) == "succeeded"


def test_a_cancel_does_not_wait_for_the_next_renewal(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """With a heartbeat every five seconds, people pressed the button again and again."""
    fleet.worker(CRONOQ_LEASE="60")
    for _ in range(6):
        result = tasks.report_and_wait.enqueue(str(tmp_path / "never"))
        wait_until(lambda result=result: status_of(result) == "running")
        cancel_runs([UUID(result.id)])
        wait_until(finished(result), seconds=3)
        assert status_of(result) == "cancelled"
