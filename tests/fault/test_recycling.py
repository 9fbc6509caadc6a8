"""Worker processes are replaced after so many runs, or grown so big; nothing is lost or doubled by it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from cronoq_django.models import Attempt, Run, Worker
from cronoq_django.models.choices import Status
from tests import tasks

from .conftest import Fleet
from .runs import finished, lines, status_of

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


def test_a_process_is_replaced_after_so_many_runs(fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "lines"
    worker = fleet.worker("--pool", "default=2", "--max-runs", "100")
    stopped = Worker.objects.filter(status="stopped")
    for batch in range(1, 4):  # what one has begun it ends, so that it may be some more than 100
        numbers = range(150 * (batch - 1), 150 * batch)
        wait_until(finished(*[tasks.count_line.enqueue(str(path), str(n)) for n in numbers]))
        wait_until(lambda batch=batch: stopped.count() >= batch, what="who has executed 100 is replaced")
    assert sorted(lines(path), key=int) == [str(n) for n in range(450)]
    assert set(Run.objects.values_list("status", "attempts")) == {(Status.SUCCEEDED, 1)}
    assert not Attempt.objects.filter(outcome="lost").exists()
    assert Worker.objects.filter(status="online").count() <= 2
    assert worker.is_alive
    assert worker.stop() == 0


def test_what_executes_ends_while_the_next_process_works_already(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """However long it takes: a grace is for those who have to stop."""
    held, path = tmp_path / "held", tmp_path / "lines"
    worker = fleet.worker("--pool", "default=2", "--max-runs", "10", CRONOQ_GRACE="1")
    long = tasks.hold.enqueue(str(held), 6.0)
    wait_until(lambda: lines(held))
    quick = [tasks.count_line.enqueue(str(path), str(n)) for n in range(30)]
    wait_until(finished(*quick))
    assert status_of(long) == Status.RUNNING
    assert Worker.objects.filter(status="draining").exists()
    wait_until(finished(long))
    assert [line.split()[1] for line in lines(held)] == ["begun", "ended"]
    assert Run.objects.get(pk=long.id).attempts == 1
    assert worker.stop() == 0


def test_a_process_that_has_grown_is_replaced(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    worker = fleet.worker("--pool", "default=1", "--max-rss", "200")
    wait_until(finished(tasks.add.enqueue(1)))
    (first,) = Worker.objects.filter(status="online")
    wait_until(finished(tasks.grow.enqueue(200)))
    wait_until(lambda: Worker.objects.get(pk=first.pk).status == "stopped")
    wait_until(finished(tasks.add.enqueue(1)))
    assert not psutil.pid_exists(first.process_id)
    assert worker.stop() == 0


@pytest.mark.parametrize("option", ["--max-runs", "--max-rss", "--processes"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_limit_that_makes_no_sense_is_refused(fleet: Fleet, option: str, value: str) -> None:
    worker = fleet.worker(f"{option}={value}")
    assert worker.wait() == 2
    assert option in worker.output
    assert f"'{value}' is not a whole number" in worker.output
