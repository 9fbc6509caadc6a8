"""Two clusters in one database, each with its leader and worker, under load: nothing of one reaches the other."""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from cronoq_django.models import Job, Leader, Run, Worker
from cronoq_django.routers import cluster
from cronoq_django.store.runs import NewRun, insert_runs
from cronoq_django.store.schema import create_schema

from .conftest import Fleet, database_url

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


def test_two_clusters_under_load_have_disjoint_rows(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    prefix = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    aliases = [f"{prefix}_load_{name}" for name in ("a", "b")]
    try:
        for alias in aliases:
            create_schema(alias)
            connections.databases[alias] = cluster(connection.settings_dict, alias)
            connections[alias].connect()
            Job.objects.using(alias).create(
                name=f"of-{alias}", script="tests.tasks.add", args=[1], kind="every", every=timedelta(seconds=1)
            )
            environment = {"DATABASE_URL": database_url(alias)}
            fleet.leader(**environment)
            fleet.worker(**environment)
        for alias in aliases:
            with connections[alias].cursor() as cursor:
                insert_runs(cursor, [NewRun(script="tests.tasks.add", args="[1]", actor=alias) for _ in range(1000)])
        for alias in aliases:
            wait_until(partial(succeeded, alias, 1000, actor=alias))
            wait_until(partial(succeeded, alias, 3, job_name=f"of-{alias}"))
        for alias in aliases:
            runs = Run.objects.using(alias)
            workers = set(Worker.objects.using(alias).values_list("pk", flat=True))
            assert len(workers) == 1
            assert set(runs.filter(worker__isnull=False).values_list("worker_id", flat=True)) == workers
            assert set(runs.exclude(actor=alias).values_list("job_name", flat=True)) <= {
                f"of-{alias}",
                *code_jobs(alias),
            }
            assert Leader.objects.using(alias).get().epoch == 1
        assert all(process.stop() == 0 for process in fleet.processes)
    finally:
        for process in fleet.processes:
            process.kill()
        for alias in aliases:
            connections[alias].close()
            connections.databases.pop(alias, None)
            with connection.cursor() as cursor:
                cursor.execute(f"DROP SCHEMA IF EXISTS {alias} CASCADE")


def succeeded(alias: str, least: int, **which: Any) -> bool:
    return Run.objects.using(alias).filter(status="succeeded", **which).count() >= least


def code_jobs(alias: str) -> set[str]:
    return set(Job.objects.using(alias).filter(source="code").values_list("name", flat=True))
