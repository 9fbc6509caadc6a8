"""Old and new code side by side, as in a rolling deploy: they must not take turns writing each other's jobs back."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cronoq_django.models import Coordinator, Job
from cronoq_django.store import list_revisions

from .conftest import Fleet, Process
from .slots import epoch

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

HEAD = "from cronoq_django import cron, job, task\n"
REPORT = '\n@job("report", cron("{}"))\n@task(name="deployed.report")\ndef report() -> None:\n    pass\n'
OLD_ONLY = '\n@job("only in the old", cron("0 9 * * *"))\n@task(name="deployed.old")\ndef old() -> None:\n    pass\n'
NEW_ONLY = '\n@job("only in the new", cron("0 9 * * *"))\n@task(name="deployed.new")\ndef new() -> None:\n    pass\n'


@pytest.fixture
def release(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """A release of the code: the environment of its processes."""

    def make(name: str, text: str) -> dict[str, str]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "deployed.py").write_text(text)
        return {"PYTHONPATH": str(folder), "CRONOQ_IMPORTS": "deployed", "CRONOQ_LEADER_TTL": "2"}

    return make


def test_old_and_new_code_do_not_take_turns(
    fleet: Fleet, release: Callable[..., dict[str, str]], wait_until: Callable[..., Any]
) -> None:
    old = release("old", HEAD + REPORT.format("0 1 * * *") + OLD_ONLY)
    new = release("new", HEAD + REPORT.format("0 2 * * *") + NEW_ONLY)

    def standing_by(process: Process) -> bool:
        return Coordinator.objects.filter(process_id=process.pid, status="standby").exists()

    first_old = fleet.leader(**old)
    wait_until(lambda: Job.objects.filter(name="report", cron="0 1 * * *").exists())
    second_old = fleet.leader(**old)
    wait_until(lambda: standing_by(second_old))
    newer = fleet.leader(**new)
    wait_until(lambda: standing_by(newer))

    second_old.signal(signal.SIGSTOP)  # so that the new code leads next
    first_old.kill()
    wait_until(lambda: Job.objects.filter(name="report", cron="0 2 * * *").exists(), what="the new code's schedule")
    second_old.signal(signal.SIGCONT)
    wait_until(lambda: standing_by(second_old), what="the old code stands by again")
    assert Job.objects.get(name="only in the old").enabled  # a living coordinator declares it
    assert Job.objects.get(name="only in the new").enabled

    led = epoch()
    newer.kill()
    wait_until(lambda: epoch() > led and "Leading" in second_old.output.rpartition("Standing by")[2])
    wait_until(
        lambda: not Job.objects.get(name="only in the new").enabled, seconds=30, what="gone from all living code"
    )
    report = Job.objects.get(name="report")
    assert report.cron == "0 2 * * *"  # the old code leads, and writes nothing back
    assert list_revisions(report.pk).count() == 2

    again = fleet.leader(**new)  # the deploy goes on
    wait_until(lambda: standing_by(again))
    second_old.stop()
    wait_until(lambda: Job.objects.get(name="only in the new").enabled)
    wait_until(lambda: not Job.objects.get(name="only in the old").enabled)
    assert list_revisions(report.pk).count() == 2
