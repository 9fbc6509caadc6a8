"""A task left its connection inside a failed transaction, and recording its failure failed as well.

One that raised SystemExit, or whatever else is no Exception, was "processing" for ever, or took the worker along; what
one had set on its session, the next one found. Here each ends as what it raised, and the next one finds all clean.
"""

from collections.abc import Callable
from typing import Any

import pytest

from cronoq_django.models import Run, Worker
from cronoq_django.models.choices import Status
from tests import tasks
from tests.fault.conftest import Fleet
from tests.fault.runs import finished

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

RAISED = {
    "exit": "SystemExit: 3",
    "interrupt": "KeyboardInterrupt",
    "generator exit": "GeneratorExit",
    "cancelled": "CancelledError",
    "silent": "_SilentError",
    "group": "ExceptionGroup",
    "recursion": "RecursionError",
    "broken": "TransactionManagementError",
}
HARMLESS = ["begin", "close", "zone", "thread", "context", "session"]


@pytest.mark.parametrize("age", ["null", "0"])
def test_b31_each_task_finds_its_surroundings_clean(fleet: Fleet, wait_until: Callable[..., Any], age: str) -> None:
    """One thread, so that each mess is followed by a look at what it left, and both on the session before it."""
    worker = fleet.worker("--pool", "default=1", CRONOQ_CONN_MAX_AGE=age)
    clean = tasks.session_of.enqueue()
    messes = [
        (kind, tasks.leave_a_mess.using(max_attempts=1).enqueue(kind), tasks.session_of.enqueue())
        for kind in [*RAISED, *HARMLESS]
    ]
    wait_until(finished(clean, *(result for _, *both in messes for result in both)))
    expected = Run.objects.get(pk=clean.id).result
    for kind, mess, after in messes:
        run = Run.objects.get(pk=mess.id)
        if run.status == Status.FAILED:
            assert RAISED[kind] in run.error, kind
        else:
            assert (kind in HARMLESS or kind == "broken", run.status) == (True, Status.SUCCEEDED), kind
        assert (run.finished_at - run.started_at).total_seconds() < 5, kind
        assert (kind, Run.objects.get(pk=after.id).result) == (kind, expected)
    assert Worker.objects.count() == 1
    assert worker.is_alive
    assert worker.stop() == 0  # also with a thread that never ends
