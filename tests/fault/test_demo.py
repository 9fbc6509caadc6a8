"""The demo: what it does and judges, and that nothing of it is left running, however it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import psycopg
import pytest
from django.utils import timezone

from cronoq_django.models import Attempt, Job, LeaderTerm, Run
from cronoq_django.models.choices import Kind, Outcome, Reason, Status, Trigger
from example_project.demo.report import Report
from example_project.shop import tasks

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 40  # seconds for a start or an end on a busy machine


class Demo:
    """`manage.py demo` in a process group of its own, on a database of its own."""

    def __init__(self, url: str, logs: Path, *options: str) -> None:
        self._url = url
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "demo", "--logs", str(logs), *options],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "example_project.settings"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said = ""

    def wait_until_it_says(self, pattern: str) -> None:
        for line in self.process.stdout:
            self.said += line
            if re.search(pattern, line):
                return
        pytest.fail(f"It never said {pattern!r}, but:\n{self.said}")

    def pid_of(self, child: str) -> int:
        return int(re.search(rf"{child} (\d+)", self.said)[1])

    def wait(self, seconds: float) -> int:
        self.said += self.process.communicate(timeout=seconds)[0]
        return self.process.returncode

    def processes(self) -> list[psutil.Process]:
        """Everything that has our database in its environment, zombies left aside."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def wait_until_nothing_is_left(self, seconds: float = 0) -> None:
        give_up_at = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < give_up_at:
            time.sleep(0.1)
        assert not left, [process.cmdline() for process in left]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("DATABASE_URL") == self._url and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


@pytest.fixture
def database():
    """The URL of a new database on the tests' server."""
    server = os.environ["DATABASE_URL"]
    name = f"demo_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def start(database, tmp_path):
    """Starts the demo; at the end of the test all of it is killed."""
    demos = []

    def start(*options: str) -> Demo:
        if "--port" not in options:  # demos of a parallel run would all find the usual port free
            options = (*options, "--port", str(free_port()))
        demos.append(Demo(database, tmp_path / "logs", *options))
        return demos[-1]

    yield start
    for demo in demos:
        for process in demo.processes():
            process.kill()
        demo.process.communicate()


@pytest.mark.fault
@pytest.mark.timeout(240)
def test_it_ends_by_itself_and_all_was_as_expected(start):
    """Twice on the same database: the second report counts nothing of the first, nor what was missed in between."""
    for _ in range(2):
        demo = start("--seconds", "13")
        assert demo.wait(13 + 2 * PATIENCE) == 0, demo.said
        demo.wait_until_nothing_is_left()
        assert re.search(r"place-sample-order +[1-5] +\d +\d$", demo.said, re.M), demo.said
        assert re.search(r"count-the-stock-once +1 +1 +0$", demo.said, re.M), demo.said
        assert "send_invoice: succeeded, attempts 3: MailServerBusy, then MailServerBusy, then succeeded" in demo.said
        assert "charge_expired_card: failed (error), attempts 2: CardExpired, then CardExpired" in demo.said


@pytest.mark.fault
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_after_a_signal(start, how):
    """Ctrl-C goes to the whole process group, SIGTERM to the demo alone."""
    demo = start()
    demo.wait_until_it_says(r"http://127\.0\.0\.1:\d+/admin/")
    assert len(demo.processes()) >= 5  # itself, the leader, two workers and the web server
    if how == signal.SIGINT:
        os.killpg(demo.process.pid, how)
    else:
        demo.process.send_signal(how)
    assert demo.wait(PATIENCE) == 0, demo.said
    demo.wait_until_nothing_is_left()


@pytest.mark.fault
def test_nothing_is_left_after_an_early_ctrl_c(start):
    """The children were starting up: they had not installed their handlers yet."""
    demo = start()
    demo.wait_until_it_says("Preparing")
    give_up_at = time.monotonic() + PATIENCE
    while len(demo.processes()) < 2 and time.monotonic() < give_up_at:
        time.sleep(0.01)
    os.killpg(demo.process.pid, signal.SIGINT)
    demo.wait(PATIENCE)
    demo.wait_until_nothing_is_left()


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_nothing_is_left_long_after_it_was_killed(start):
    demo = start()
    demo.wait_until_it_says("Ctrl-C")
    demo.process.kill()
    demo.wait_until_nothing_is_left(seconds=PATIENCE)


@pytest.mark.fault
def test_a_killed_leader_is_started_again(start, database):
    demo = start()
    demo.wait_until_it_says("Ctrl-C")
    os.kill(demo.pid_of("leader"), signal.SIGKILL)
    demo.wait_until_it_says("leader was killed: started again")
    with psycopg.connect(database, autocommit=True) as connection:
        give_up_at = time.monotonic() + PATIENCE
        while connection.execute("SELECT max(epoch) FROM cronoq_leader_term").fetchone() != (2,):
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.wait(PATIENCE) == 0, demo.said
    demo.wait_until_nothing_is_left()


@pytest.mark.fault
def test_a_child_that_ends_by_itself_ends_the_demo(start):
    """A leader that could not start was only found in its log, while the demo went on without slots."""
    demo = start()
    demo.wait_until_it_says("Ctrl-C")
    os.kill(demo.pid_of("leader"), signal.SIGTERM)
    assert demo.wait(PATIENCE) == 1
    assert "leader ended by itself" in demo.said
    demo.wait_until_nothing_is_left()


@pytest.mark.fault
def test_there_is_one_demo_at_a_time(start):
    """The second one wrote over the first one's logs, and waited for a leader of its own in vain."""
    start().wait_until_it_says("Preparing")
    second = start()
    assert second.wait(PATIENCE) == 1
    assert "Another demo is running here" in second.said


@pytest.mark.fault
def test_a_taken_port_is_refused_if_it_was_asked_for(start):
    with socket.create_server(("127.0.0.1", 0)) as server:
        demo = start("--port", str(server.getsockname()[1]))
        assert demo.wait(PATIENCE) == 1
    assert re.search(r"Port \d+ is taken: choose another", demo.said), demo.said


@pytest.fixture
def job(db):
    """A job every 5 seconds from now, by whose slots a leader's term is judged."""
    LeaderTerm.objects.create(term=uuid4(), epoch=1, coordinator=uuid4(), host="here", from_at=timezone.now())
    return Job.objects.create(
        name="steady",
        script=tasks.refresh_stock.script_name,
        kind=Kind.EVERY,
        every=timedelta(seconds=5),
        anchor=timezone.now() + timedelta(seconds=1),
    )


def fire(job: Job, *numbers: float, status: Status = Status.SUCCEEDED, reason: str = "") -> None:
    for number in numbers:
        slot = job.anchor + number * job.every
        end(script=job.script, trigger=Trigger.SLOT, job=job, scheduled_for=slot, status=status, reason=reason)


def end(**columns) -> Run:
    columns = {"trigger": Trigger.ENQUEUE, "status": Status.SUCCEEDED, "attempts": 1, **columns}
    return Run.objects.create(finished_at=timezone.now(), **columns)


def report(job: Job, slots: int = 3) -> Report:
    return Report(timezone.now() - timedelta(minutes=1), job.anchor + slots * job.every)


def test_slots_that_were_fired_or_skipped_are_as_expected(job):
    fire(job, 1, 2)
    fire(job, 3, status=Status.SKIPPED, reason=Reason.OVERLAP)
    fire(job, 4)  # after what is judged
    judged = report(job)
    assert judged.problems == []
    assert f"  {'steady':<24}{3:>11}{2:>11}{1:>11}" in judged.lines


def test_a_slot_that_was_not_fired_is_a_problem(job):
    fire(job, 1, 3)
    assert [re.sub(r"\d", "0", problem) for problem in report(job).problems] == [
        "steady was due but not fired: 00:00:00.000000"
    ]


def test_a_slot_that_was_not_due_is_a_problem(job):
    fire(job, 1, 1.5, 2, 3)
    assert [problem.partition(":")[0] for problem in report(job).problems] == ["steady was fired but not due"]


def test_slots_before_the_job_was_changed_are_not_judged(job):
    fire(job, -2)
    assert report(job, slots=0).problems == []


def test_a_paused_job_has_no_slots(job):
    Job.objects.update(enabled=False)
    assert report(job).problems == []


def test_without_a_leader_nothing_is_as_expected(job):
    LeaderTerm.objects.all().delete()
    assert report(job).problems == ["no leader began a term"]


@pytest.mark.parametrize(
    ("task", "columns", "is_expected"),
    [
        (tasks.ship_orders, {}, True),
        (tasks.ship_orders, {"attempts": 2}, True),
        (tasks.ship_orders, {"status": Status.FAILED, "reason": Reason.ERROR}, False),
        (tasks.ship_orders, {"status": Status.CANCELLED, "reason": Reason.REQUESTED}, False),
        (tasks.send_invoice, {"attempts": 3}, True),
        (tasks.send_invoice, {"attempts": 1}, False),
        (tasks.charge_expired_card, {"status": Status.FAILED, "reason": Reason.ERROR, "attempts": 2}, True),
        (tasks.charge_expired_card, {"status": Status.FAILED, "reason": Reason.ERROR, "attempts": 3}, False),
        (tasks.charge_expired_card, {"status": Status.FAILED, "reason": Reason.LOST, "attempts": 2}, False),
        (tasks.charge_expired_card, {"attempts": 2}, False),
    ],
)
def test_runs_end_as_their_script_does(job, task, columns, is_expected):
    run = end(script=task.script_name, **columns)
    problems = report(job, slots=0).problems
    assert [str(run.pk) in problem for problem in problems] == ([] if is_expected else [True])


def test_a_run_that_has_not_ended_is_a_problem(job):
    waiting = {"trigger": Trigger.ENQUEUE, "script": tasks.ship_orders.script_name}
    Run.objects.create(status=Status.QUEUED, **waiting)
    Run.objects.create(status=Status.SCHEDULED, attempts=1, due_at=timezone.now() + timedelta(hours=1), **waiting)
    Run.objects.create(status=Status.SCHEDULED, due_at=timezone.now() + timedelta(hours=1), **waiting)  # put off
    assert [problem.rpartition(", and ")[2] for problem in report(job, slots=0).problems] == ["has not ended"] * 2


def test_attempts_are_told(job):
    run = end(script=tasks.send_invoice.script_name, attempts=2)
    for number, (outcome, error) in enumerate(((Outcome.FAILED, "shop.MailServerBusy"), (Outcome.SUCCEEDED, "")), 1):
        moment = timezone.now()
        Attempt.objects.create(
            run=run,
            number=number,
            claim=number,
            started_at=moment,
            ended_at=moment,
            outcome=outcome,
            exception_class=error,
        )
    assert "  send_invoice: succeeded, attempts 2: MailServerBusy, then succeeded" in report(job, slots=0).lines
