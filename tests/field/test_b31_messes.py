"""A task left its connection inside a failed transaction, and recording its failure failed as well.

One that raised SystemExit, or whatever else is no Exception, was "processing" for ever, or took the worker along; what
one had set on its session, the next one found. Here each ends as what it raised, and the next one finds all clean.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import DurationField, ExpressionWrapper, F, Max

from cronoq_django.models import Pool, Run, Worker
from cronoq_django.models.choices import Status
from tests import tasks
from tests.fault.conftest import Fleet
from tests.fault.runs import finished

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

MESSES = {
    tasks.leave_a_mess: {
        "exit": "SystemExit: 3",
        "interrupt": "KeyboardInterrupt",
        "generator exit": "GeneratorExit",
        "cancelled": "CancelledError",
        "silent": "_SilentError",
        "group": "ExceptionGroup",
        "recursion": "RecursionError",
        "broken": "",
        "begin": "",
        "close": "",
        "zone": "",
        "context": "",
        "session": "",
    },
    tasks.spoil: {
        "no autocommit": "",
        "left atomic": "",
        "closed inside": "",
        "lost": "",
        "refusing": "",
        "other aliases": "",
        "decimals": "",
        "event loop": "",
    },
    tasks.spoil_async: {
        "exit": "SystemExit: 3",
        "interrupt": "KeyboardInterrupt",
        "generator exit": "GeneratorExit",
        "cancelled": "CancelledError",
        "silent": "_SilentError",
        "group": "ExceptionGroup",
        "cancels itself": "CancelledError",
        "zone": "",
        "context": "",
        "leaves a task": "",
        "leaves a transaction": "",
    },
}  # tasks and their arguments; what each raises

KEPT = {
    "for good": {"CRONOQ_CONN_MAX_AGE": "null"},
    "never": {"CRONOQ_CONN_MAX_AGE": "0"},
    "in a pool": {"CRONOQ_POOL": "true"},
}  # connections; how the environment says so


@pytest.mark.parametrize("kept", KEPT)
def test_b31_each_task_finds_its_surroundings_clean(fleet: Fleet, wait_until: Callable[..., Any], kept: str) -> None:
    """One thread, so that each mess is followed by a look at what it left, and both on the session before it."""
    if kept == "in a pool":
        pytest.importorskip("psycopg_pool")
    worker = fleet.worker("--pool", "default=1", **KEPT[kept])
    clean = tasks.outlook.enqueue()
    left = [
        (f"{mess.name} {kind}", raised, mess.using(max_attempts=1).enqueue(kind), look.enqueue())
        for mess, kinds in MESSES.items()
        for kind, raised in kinds.items()
        for look in (tasks.outlook, tasks.outlook_async)
    ]
    wait_until(finished(clean, *(result for _, _, *both in left for result in both)))
    expected = Run.objects.get(pk=clean.id).result
    for what, raised, mess, look in left:
        run = Run.objects.get(pk=mess.id)
        assert (what, run.status) == (what, Status.FAILED if raised else Status.SUCCEEDED), run.error
        assert raised in run.error
        assert (what, Run.objects.get(pk=look.id).result) == (what, expected)
    took = ExpressionWrapper(F("finished_at") - F("started_at"), output_field=DurationField())
    assert Run.objects.aggregate(most=Max(took))["most"].total_seconds() < 5
    assert not Pool.objects.filter(name="never committed").exists()
    assert Worker.objects.count() == 1
    assert worker.is_alive
    assert worker.stop() == 0


def test_b31_a_thread_that_a_task_left_holds_no_process(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    """Python waits for such threads at its end: a process that was replaced stayed, with its memory; a stop took all
    of the grace, and more."""
    worker = fleet.worker("--pool", "default=1", "--max-runs", "1", CRONOQ_GRACE="60")
    mess = tasks.leave_a_mess.enqueue("thread")
    wait_until(finished(mess))
    wait_until(lambda: Worker.objects.filter(status="stopped").exists())
    last = tasks.leave_a_mess.enqueue("thread")
    wait_until(finished(last))
    begun = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - begun < 30
    assert not Worker.objects.filter(status="lost").exists()
