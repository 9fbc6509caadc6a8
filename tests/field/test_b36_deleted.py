"""A job that had ever run could not be deleted; or deleting it collected every row of its history and timed out.

Or orphaned history attached itself to a new job of the same name, and a run in flight crashed at its end. Here deleting
touches no run: history keeps the job's name, waiting runs are cancelled by the leader, a running one ends as it does.
"""

import resource
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from cronoq_django.models import Job, JobState, Run
from cronoq_django.store import run_job_now, upsert_job
from tests.fault.conftest import Fleet

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]

HISTORY = 300_000


def job(**columns: Any) -> Job:
    return upsert_job("old", script="tests.tasks.add", args=[1], kind="manual", **columns)


def add_history(of: Job) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_run "
            "(id, trigger, job_id, job_name, script, args, kwargs, pool, status, due_at, finished_at) "
            "SELECT gen_random_uuid(), 'manual', %s, 'old', 'tests.tasks.add', '[1]', '{}', 'default', 'succeeded', "
            "clock_timestamp(), clock_timestamp() FROM generate_series(1, %s)",
            [of.pk, HISTORY],
        )


def by_model(of: Job) -> None:
    of.delete()


def by_page(of: Job) -> None:
    admin().post(reverse("admin:cronoq_job_delete", args=[of.pk]), {"post": "yes"})


def by_action(of: Job) -> None:
    data = {"action": "delete_selected", "_selected_action": [str(of.pk)], "post": "yes"}
    admin().post(reverse("admin:cronoq_job_changelist"), data)


def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.mark.parametrize("delete", [by_model, by_page, by_action])
def test_b36_a_job_with_history_is_deleted(
    delete: Callable[[Job], None], fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    old = job()
    add_history(old)
    slow = upsert_job("old", script="tests.tasks.sleep_async", args=[6.0])
    running = run_job_now(slow.pk)
    fleet.worker("--pool", "default=1")
    wait_until(lambda: Run.objects.filter(pk=running, status="running").exists())
    waiting = [run_job_now(slow.pk) for _ in range(5)]
    fleet.leader()
    wait_until(lambda: JobState.objects.filter(job=old.pk).exists())

    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    delete(old)
    assert time.monotonic() < begun + 20
    assert not Job.objects.filter(pk=old.pk).exists()
    wait_until(lambda: Run.objects.filter(pk__in=waiting, reason="job_deleted").count() == 5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100_000

    new = job()
    assert new.pk != old.pk
    assert not Run.objects.filter(job=new.pk).exists()
    assert new.revision == 1
    wait_until(lambda: Run.objects.filter(pk=running, finished_at__isnull=False).exists())
    ended = Run.objects.get(pk=running)
    assert (ended.status, ended.job_name, ended.error) == ("succeeded", "old", "")
    assert Run.objects.filter(job_name="old").count() == HISTORY + 6


def test_b36_a_deletion_at_the_instant_of_a_tick_fires_once_or_not_at_all(
    fleet: Fleet, wait_until: Callable[..., Any]
) -> None:
    fleet.leader()
    for number in range(8):
        name, begun = f"brief {number}", time.monotonic()
        made = upsert_job(name, script="tests.tasks.add", args=[1], kind="every", every="00:00:01", overlap="allow")
        wait_until(lambda of=made.pk: Run.objects.filter(job=of).exists())
        time.sleep(0.9 + 0.01 * number)  # around the next slot
        Job.objects.filter(pk=made.pk).delete()
        assert Run.objects.filter(job_name=name).count() <= time.monotonic() - begun + 1
    wait_until(lambda: not Run.objects.filter(job_name__startswith="brief", status="queued").exists())
    before = Run.objects.filter(job_name__startswith="brief").count()
    time.sleep(2)
    assert Run.objects.filter(job_name__startswith="brief").count() == before
    assert not JobState.objects.exclude(job__in=Job.objects.values("pk")).exists()
