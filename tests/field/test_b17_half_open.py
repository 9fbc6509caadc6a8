"""A failover behind a proxy left the client's socket open, with nothing behind it, and a fetch never returned.

For seven hours the worker did nothing and said nothing, and SIGTERM could not stop it either. (How leaders fare in the
dark, and idle workers, is in tests/fault/test_network.py.)
"""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cronoq_django.models import Attempt, Run
from cronoq_django.models.choices import Outcome, Status
from tests import tasks
from tests.fault.conftest import Fleet, database_url
from tests.fault.proxy import TcpProxy
from tests.fault.runs import finished

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


def test_b17_a_silent_database_is_told_of_and_does_not_keep_a_worker_from_stopping(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """Its run goes to another worker; what it makes of it itself counts no more; and it works again in the light."""
    with TcpProxy(database_url()) as proxy:
        worker = fleet.worker("--pool", "default=1", "--pool", "own=1", DATABASE_URL=proxy.url, CRONOQ_GRACE="2")
        result = tasks.outlive.enqueue(str(tmp_path), "success")
        wait_until(lambda: Run.objects.filter(pk=result.id, started_at__isnull=False).exists())
        first = Run.objects.get(pk=result.id).worker_id

        proxy.go_black()
        black_at = time.monotonic()
        fleet.leader()
        fleet.worker("--pool", "default=1")
        (tmp_path / "end-2").touch()
        wait_until(finished(result))
        wait_until(lambda: "The database is unavailable" in worker.output, seconds=30)
        print(f"Told of after {time.monotonic() - black_at:.1f} s.")

        proxy.heal()
        (tmp_path / "end-1").touch()
        own = tasks.add.using(queue_name="own").enqueue(1)
        wait_until(finished(own))
        assert Run.objects.get(pk=own.id).worker_id == first
        run = Run.objects.get(pk=result.id)
        assert (run.status, run.attempts, run.result) == (Status.SUCCEEDED, 2, "attempt 2")
        assert run.worker_id != first
        assert Attempt.objects.filter(run=run, worker=first).values_list("outcome", flat=True).get() == Outcome.LOST

        (tmp_path / "last").mkdir()
        last = tasks.outlive.using(queue_name="own").enqueue(str(tmp_path / "last"), "success")
        wait_until(lambda: Run.objects.filter(pk=last.id, started_at__isnull=False).exists())
        proxy.go_black()
        stopped_at = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        print(f"Stopped after {time.monotonic() - stopped_at:.1f} s, with a grace of 2 s.")
    assert Run.objects.get(pk=result.id).result == "attempt 2"
