"""The roads by which a job comes into the table, and a batch of the leader with odd jobs among good ones."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.urls import reverse

from cronoq_django import cron, job, registry
from cronoq_django.leader.stages.fire import Fire
from cronoq_django.leader.stages.plan import Plan
from cronoq_django.models import Job, JobState, Run
from cronoq_django.schedules import ScheduleError
from cronoq_django.store.jobs import upsert_job
from tests import tasks

LONGEST_REFUSAL = 0.2  # seconds
GOOD = 49


def superuser() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def by_model(**schedule: str) -> set[str]:
    try:
        Job(name="odd", script="tests.tasks.add", args=[1], **schedule).full_clean()
    except ValidationError as error:
        return set(error.message_dict)
    return set()


def by_store(**schedule: str) -> set[str]:
    try:
        upsert_job("odd", script="tests.tasks.add", args=[1], **schedule)
    except ValidationError as error:
        return set(error.message_dict)
    return set()


def by_code(**schedule: str) -> set[str]:
    """As at the import of a module of tasks."""
    expression = schedule.get("cron", "@daily")
    try:
        job("odd", cron(expression, timezone=schedule.get("timezone", "UTC")), args=[1])(tasks.add)
    except ScheduleError as error:
        return {error.field}
    registry._jobs.pop("odd")
    return set()


def by_form(client: Client, **schedule: str) -> set[str]:
    what = {"name": "odd", "script": "tests.tasks.add", "args": "[1]", "kwargs": "{}", "enabled": "on", "kind": "cron"}
    how = {"pool": "default", "priority": "0", "max_attempts": "3", "overlap": "skip", "concurrency": "1"}
    late = {"timezone": "UTC", "jitter": "0", "misfire": "latest", "misfire_limit": "10"}
    response = client.post(reverse("admin:cronoq_job_add"), what | how | late | schedule)
    if response.status_code == 302:
        return set()
    assert response.status_code == 200
    errors = response.context["adminform"].form.errors
    assert 'class="errorlist"' in response.content.decode()
    return set(errors)


@dataclass
class Road:
    """A way to store a job: called with columns of the schedule, it says which fields were refused."""

    name: str
    store: Callable[..., set[str]]

    def __call__(self, **schedule: str) -> set[str]:
        return self.store(**schedule)

    def refuses(self, field: str, **schedule: str) -> None:
        """Refused at this field alone, in under 0.2 s (the best of three, warm), and nothing is stored or declared.

        Where others keep the machine so busy that even the best took longer, it is compared with what needs no thought
        at all, in the processor's time: the rest is the form's page, and no search.
        """
        wall, work = self._best(field, **schedule)
        if wall >= LONGEST_REFUSAL:
            _, plain = self._best("cron", cron="nonsense")
            assert work < 3 * plain + LONGEST_REFUSAL / 2
        assert not Job.objects.exists()
        assert "odd" not in registry.jobs()

    def _best(self, field: str, **schedule: str) -> tuple[float, float]:
        """The quickest of three refusals: seconds, and seconds of the processor."""
        walls, works = [], []
        for _ in range(4):  # the first one warms the caches
            began, worked = time.perf_counter(), time.process_time()
            fields = self.store(**schedule)
            walls.append(time.perf_counter() - began)
            works.append(time.process_time() - worked)
            assert fields == {field}
        return min(walls[1:]), min(works[1:])


@pytest.fixture(params=["full_clean", "upsert_job", "form", "code"])
def road(request: pytest.FixtureRequest, db: None) -> Road:
    """Each of them in turn."""
    if request.param == "form":
        client = superuser()
        return Road("form", lambda **schedule: by_form(client, **schedule))
    return Road(request.param, {"full_clean": by_model, "upsert_job": by_store, "code": by_code}[request.param])


@pytest.fixture
def set_aside(leading: Any, caplog: pytest.LogCaptureFixture) -> Callable[[str, Sequence[tuple[str, str]]], None]:
    """Put schedules into the table by SQL, 49 good jobs beside them, and see what the leader makes of that batch."""

    def step(stage: Any) -> int:
        with leading.transaction() as tx:
            return int(stage.step(tx))

    def check(field: str, schedules: Sequence[tuple[str, str]]) -> None:
        good = [Job(name=f"good {n}", script="tests.tasks.add", args=[1], cron="* * * * *") for n in range(GOOD)]
        with connection.cursor() as cursor:
            Job.objects.bulk_create(good[:25])
            for number, (expression, zone) in enumerate(schedules):
                cursor.execute(
                    "INSERT INTO cronoq_job (name, script, args, kwargs, cron, timezone) "
                    "VALUES (%s, 'tests.tasks.add', '[1]', '{}', %s, %s)",
                    [f"bad {number}", expression, zone],
                )
            Job.objects.bulk_create(good[25:])
        began = time.perf_counter()
        assert step(Plan()) == GOOD + len(schedules)
        assert time.perf_counter() - began < Plan.every.total_seconds()  # one poll
        states = {state.job.name: state for state in JobState.objects.select_related("job")}
        for name, state in states.items():
            if name.startswith("good"):
                assert (state.error, state.next_run_at is not None) == ("", True)
            else:
                assert state.error.startswith(f"{field}: ")
                assert (state.next_run_at, state.completed_at) == (None, None)
        said = [record.getMessage() for record in caplog.records if "is set aside" in record.getMessage()]
        assert len(said) == len(schedules)
        assert step(Plan()) == 0
        JobState.objects.filter(error="").update(next_run_at=datetime.now(UTC).replace(second=0, microsecond=0))
        assert step(Fire()) == GOOD
        assert set(Run.objects.values_list("job_name", flat=True)) == {f"good {n}" for n in range(GOOD)}
        assert len([record for record in caplog.records if "is set aside" in record.getMessage()]) == len(schedules)
        page = superuser().get(reverse("admin:cronoq_job_changelist"), {"q": "bad"}).content.decode()
        assert page.count(f"{field}: ") >= len(schedules)

    return check
