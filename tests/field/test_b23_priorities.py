"""A job every second that took five seconds held the only worker, and another job stayed at no runs for good.

Priority is strict here, too, as the docs say: what is urgent comes first as long as there is any. But nobody need
wonder for how long the rest has waited.
"""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from cronoq_django import enqueue_many
from cronoq_django.models import Run
from cronoq_django.models.choices import Status
from tests import tasks
from tests.fault.conftest import Fleet
from tests.fault.runs import finished, lines

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

LENGTH = timedelta(seconds=120 if int(os.environ.get("CRONOQ_REPEATS", "1")) > 1 else 4)  # of urgent work


def test_b23_the_most_urgent_comes_first_then_what_was_due_first_then_what_came_first(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    now = datetime.now(UTC)

    def line(name: str, priority: int, due: float | None = None) -> Any:
        after = None if due is None else now - timedelta(seconds=due)
        return tasks.count_line.using(priority=priority, run_after=after).bind(str(tmp_path / "lines"), name)

    results = enqueue_many([line("low, long due", -10, 60), line("first", 0), line("second", 0), line("urgent", 10)])
    results += enqueue_many([line("third", 0), line("due earlier", 0, 30), line("urgent, due earlier", 10, 10)])
    fleet.worker("--pool", "default=1")
    wait_until(finished(*results))
    order = ["urgent, due earlier", "urgent", "due earlier", "first", "second", "third", "low, long due"]
    assert lines(tmp_path / "lines") == order


@pytest.mark.timeout(300)
def test_b23_it_shows_for_how_long_the_rest_waits(fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "lines"
    urgent = tasks.count_line_slowly.using(priority=10)

    def goes_on(count: int = 5) -> bool:
        """Keep so much urgent work ready; whether it has been going on for long."""
        missing = count - Run.objects.filter(status=Status.QUEUED, priority=10).count()
        enqueue_many([urgent.bind(str(path), "urgent", 0.1) for _ in range(missing)])
        return datetime.now(UTC) - since > LENGTH

    rest = tasks.count_line.using(priority=-10).enqueue(str(path), "the rest")
    since = Run.objects.get(pk=rest.id).due_at
    goes_on()
    fleet.worker("--pool", "default=1")
    wait_until(lambda: goes_on() and lines(path), seconds=200)
    goes_on(count=100)
    waits = {ready["priority"]: ready for ready in json.loads(told("--json"))["ready"]}
    assert list(waits) == [10, -10]
    assert (waits[-10]["pool"], waits[-10]["count"]) == ("default", 1)
    assert abs(datetime.fromisoformat(waits[-10]["oldest_due_at"]) - since) < timedelta(milliseconds=1)
    assert "default, priority -10: 1, the oldest for" in told()
    assert "the rest" not in lines(path)
    Run.objects.filter(status=Status.QUEUED, priority=10).delete()
    wait_until(finished(rest))
    assert lines(path)[-1] == "the rest"


def told(*options: str) -> str:
    """What the command prints; nobody leads, so that it exits with 1."""
    said = StringIO()
    with pytest.raises(SystemExit):
        call_command("cronoq_status", *options, stdout=said)
    return said.getvalue()
