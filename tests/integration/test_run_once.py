"""A one-off job is made exactly once, wherever its leaders die.

Claimed in one statement, made in the next, marked in a third: elsewhere a kill between two of them lost the run, or
made it again. Here all of that is one fenced transaction.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from cronoq_django.errors import Unavailable
from cronoq_django.leader.election import Election, Identity
from cronoq_django.leader.loop import Leader
from cronoq_django.leader.stages.fire import Fire
from cronoq_django.leader.stages.plan import Plan
from cronoq_django.models import JobState, Run
from cronoq_django.store import session as sessions
from cronoq_django.store import upsert_job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def killed_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """End the session of whoever executes the n-th statement from now on, right after it."""
    left = [0]
    execute = sessions._Cursor.execute

    def counted(cursor: Any, *args: Any, **kwargs: Any) -> Any:
        answer = execute(cursor, *args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            with connection.cursor() as killer:
                killer.execute("SELECT pg_terminate_backend(%s, 5000)", [cursor.connection.info.backend_pid])
        return answer

    monkeypatch.setattr(sessions._Cursor, "execute", counted)
    return lambda number: left.__setitem__(0, number)


def lead_once() -> None:
    """As a leader does: plan, then fire."""
    election = Election("default", Identity())
    try:
        fence = election.try_to_lead()
        assert fence is not None
        for stage in (Plan(), Fire()):
            with fence.transaction() as tx:
                stage.step(tx)
    finally:
        election.close()


def test_a_leader_dies_after_each_of_its_statements(killed_after: Callable[[int], None]) -> None:
    deaths = 0
    for number in range(1, 200):
        job = upsert_job(f"once {number}", script="tests.tasks.add", args=[1], kind="once", run_at=timezone.now())
        killed_after(number)
        try:
            lead_once()
            survived = True
        except Unavailable:
            survived = False
            deaths += 1
        killed_after(-1)
        lead_once()
        lead_once()
        assert Run.objects.filter(job=job).count() == 1, f"killed after statement {number}"
        assert JobState.objects.get(job=job).completed_at is not None
        if survived:
            break
    assert deaths > 15


def test_four_leaders_race_for_it_while_their_sessions_are_cut(wait_until: Callable[..., Any]) -> None:
    leaders = [Leader("default") for _ in range(4)]
    threads = [threading.Thread(target=leader.run) for leader in leaders]
    for thread in threads:
        thread.start()
    try:
        for number in range(15):
            job = upsert_job(
                f"once {number}", script="tests.tasks.add", args=[1], kind="once",
                run_at=timezone.now() + timedelta(milliseconds=30 * number),
            )  # fmt: skip
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(backend_pid) FROM cronoq_leader")
            wait_until(lambda job=job: Run.objects.filter(job=job).exists())
    finally:
        for leader in leaders:
            leader.stop()
        for thread in threads:
            thread.join(60)
    names = list(Run.objects.filter(trigger="slot", job_name__startswith="once").values_list("job_name", flat=True))
    assert sorted(names) == sorted(f"once {number}" for number in range(15))
