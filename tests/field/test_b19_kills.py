"""Runs stayed "in progress" for weeks after their machine had vanished.

And a task that exhausted memory killed worker after worker for 17 hours, since a crash was no attempt.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from django.db.models import Sum

from cronoq_django.models import Attempt, Run, Worker
from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.tasks.enqueue import enqueue_many
from tests import tasks
from tests.fault.conftest import Fleet, Process
from tests.fault.runs import finished, lines

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

MANY, KILLS, WORKERS, THREADS = 1000, 20, 3, 4


def test_b19_a_thousand_tasks_and_twenty_kills(fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    """Of child or supervisor, whose child then ends by itself; always of one that executes, with more claimed ahead."""
    path = tmp_path / "lines"
    fleet.leader(CRONOQ_LEASE="1")
    workers = [fleet.worker(CRONOQ_LEASE="1") for _ in range(WORKERS)]
    results: list[Any] = []
    chance = random.Random(19)
    killed: dict[UUID, str] = {}

    def submit(number: int) -> None:
        bound = [tasks.count_line_slowly.bind(str(path), str(n + len(results)), 0.01) for n in range(number)]
        results.extend(enqueue_many(bound))

    def executing() -> Worker | None:
        if Run.objects.filter(script="tests.tasks.count_line_slowly", finished_at=None).count() < MANY / KILLS:
            submit(100)
        return at_work(chance, killed)

    for _ in range(KILLS):
        victim = wait_until(executing)
        if chance.random() < 0.5:
            killed[victim.pk] = "child"
            os.kill(victim.process_id, signal.SIGKILL)
        else:
            killed[victim.pk] = "supervisor"
            kill_supervisor(victim, fleet, workers)
    submit(max(0, MANY - len(results)))
    wait_until(finished(*results))
    runs = Run.objects.filter(pk__in=[result.id for result in results])
    assert set(runs.values_list("status", flat=True)) == {Status.SUCCEEDED}
    executed = Counter(line.split()[0] for line in lines(path))
    assert set(executed) == {str(n) for n in range(len(results))}
    charged = (runs.aggregate(sum=Sum("attempts"))["sum"] or 0) - len(results)
    lost = Attempt.objects.filter(run__in=runs, outcome=Outcome.LOST)
    print(
        f"{len(results)} tasks, killed: {dict(Counter(killed.values()))}; "
        f"{charged} attempts lost, {executed.total() - len(results)} executed once more"
    )
    assert charged == len(lost) > 0
    assert {attempt.worker_id for attempt in lost} <= set(killed)
    assert_only_begun_ones_are_charged(lost, lines(path))
    assert not Run.objects.filter(status=Status.RUNNING, script="tests.tasks.count_line_slowly").exists()


def at_work(chance: random.Random, killed: dict[UUID, str]) -> Worker | None:
    """One that executes."""
    busy = Run.objects.filter(status=Status.RUNNING, attempts=0).exclude(worker__in=killed).values("worker")
    return chance.choice(list(Worker.objects.filter(pk__in=busy).order_by("pk")) or [None])


def kill_supervisor(victim: Worker, fleet: Fleet, workers: list[Process]) -> None:
    """And start another, as a service manager does."""
    parent = psutil.Process(victim.process_id).ppid()
    (number,) = [number for number, worker in enumerate(workers) if worker.pid == parent]
    os.kill(parent, signal.SIGKILL)
    workers[number].wait()
    workers[number] = fleet.worker(CRONOQ_LEASE="1")


def assert_only_begun_ones_are_charged(lost: Any, executed: list[str]) -> None:
    """Each has left its line, but for those that were about to: as many as there are threads."""
    processes = dict(Worker.objects.values_list("pk", "process_id"))
    numbers = {run.pk: run.args[1] for run in Run.objects.filter(pk__in=[attempt.run_id for attempt in lost])}
    begun = set(executed)
    unseen = Counter(
        attempt.worker_id
        for attempt in lost
        if f"{numbers[attempt.run_id]} {processes[attempt.worker_id]}" not in begun
    )
    assert max(unseen.values(), default=0) <= THREADS, unseen


@pytest.mark.parametrize("everybody", [False, True], ids=["the child", "the supervisor too"])
def test_b19_a_task_that_kills_its_worker_ends_after_its_attempts(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path, everybody: bool
) -> None:
    """Where nobody is left to tell that it had begun, the first time does not count. What executes beside it is lost
    with it, but not each time."""
    path, poisoned = tmp_path / "lines", tmp_path / "poisoned"
    fleet.leader(CRONOQ_LEASE="1")
    options = {"CRONOQ_LEASE": "1"}
    workers = [fleet.worker(**options) for _ in range(WORKERS)]
    quick = [tasks.count_line.bind(str(path), str(n)) for n in range(50)]
    slow = [tasks.count_line_slowly.using(max_attempts=3).bind(str(path), str(n), 0.2) for n in range(50, 100)]
    poison, *others = enqueue_many([tasks.kill_worker.bind(str(poisoned), everybody), *quick, *slow])

    def is_over() -> bool:
        for number, worker in enumerate(workers):
            if not worker.is_alive:  # as a service manager does
                workers[number] = fleet.worker(**options)
        return finished(poison, *others)()

    wait_until(is_over)
    run = Run.objects.get(pk=poison.id)
    assert (run.status, run.reason, run.attempts) == (Status.FAILED, Reason.LOST, 3)
    assert "lost" in run.error
    history = Attempt.objects.filter(run=run.pk).order_by("id").values_list("number", "outcome")
    assert list(history) == [(number, Outcome.LOST) for number in (1, 2, 3)]
    assert len(lines(poisoned)) == (4 if everybody else 3)
    rows = Run.objects.filter(pk__in=[other.id for other in others])
    assert set(rows.values_list("status", flat=True)) == {Status.SUCCEEDED}
    executed = Counter(line.split()[0] for line in lines(path))
    assert set(executed) == {str(n) for n in range(100)}
    print(f"of 100 others: attempts {dict(Counter(rows.values_list('attempts', flat=True)))}")
    assert not Run.objects.filter(pk__in=[one.id for one in (poison, *others)], status=Status.RUNNING).exists()
