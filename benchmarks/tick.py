"""A leader's rounds: firing many jobs, and having nothing to do beside many."""

import resource
import time
from functools import partial
from typing import Any

from django.db import connections

from benchmarks.measure import best, empty_cluster, say
from cronoq_django import registry
from cronoq_django.leader.election import Election, Identity
from cronoq_django.leader.fence import Fence
from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages import all_stages
from cronoq_django.leader.stages.fire import Fire
from cronoq_django.leader.stages.plan import Plan
from cronoq_django.store.runs import NewRun, insert_runs

MANY, MOST = 10_000, 100_000


def main() -> None:
    """Slots fired a second, and the database time of a round in which nothing is due."""
    registry.autodiscover()  # as the command does
    with empty_cluster():
        election = Election("benchmarks", Identity())
        fence = election.try_to_lead()
        assert fence is not None
        try:
            _fire(fence)
            _idle(fence, election)
        finally:
            election.close()


def _fire(fence: Fence) -> None:
    make_jobs(MANY, "cron => '* * * * *'")
    drain(Plan(), fence)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sql("UPDATE cronoq_job_state SET next_run_at = date_trunc('minute', clock_timestamp())")
    begun = time.perf_counter()
    fired = drain(Fire(), fence)
    took = time.perf_counter() - begun
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    rows = [NewRun(script="x", job_name="x", pool="default") for _ in range(MANY)]
    begun = time.perf_counter()
    for start in range(0, MANY, 500):
        with fence.transaction() as tx:
            insert_runs(tx, rows[start : start + 500])
    bare = time.perf_counter() - begun
    say(
        f"{fired:,} due jobs fired",
        f"{fired / took:,.0f} slots/s",
        f"{took / bare:.1f} × bare inserts; {grown:+.0f} MB",
    )


def _idle(fence: Fence, election: Election) -> None:
    for number in (MANY, MOST):
        sql("TRUNCATE cronoq_job, cronoq_job_state, cronoq_job_change, cronoq_job_revision, cronoq_run")
        make_jobs(number, "cron => '0 0 1 1 *'")
        drain(Plan(), fence)
        sql("VACUUM ANALYZE")
        stages = all_stages(declared_at=election.registered_at)
        for stage in stages:
            drain(stage, fence)

        busy, trip = best(partial(one_round, fence), rounds=200), best(partial(one_trip, fence), rounds=200)
        say(
            f"a round beside {number:,} jobs, none due",
            f"{busy * 1e3:.2f} ms",
            f"{busy / trip:.1f} × an empty fenced transaction",
        )


def one_round(fence: Fence) -> None:
    for _ in range(2):  # before the stages, and before sleeping
        assert not fence.look().stages


def one_trip(fence: Fence) -> None:
    with fence.transaction():
        pass


def make_jobs(number: int, schedule: str) -> None:
    kind, _, value = schedule.partition(" => ")
    sql(
        f"INSERT INTO cronoq_job (id, name, script, args, kwargs, overlap, kind, {kind}) "
        "SELECT gen_random_uuid(), 'job ' || n, 'example_project.shop.tasks.close_the_day', '[]', '{}', 'allow', "
        f"'{kind}', {value} FROM generate_series(1, {number}) AS n"
    )


def step(stage: Stage, fence: Fence) -> int:
    with fence.transaction() as tx:
        return stage.step(tx)


def drain(stage: Stage, fence: Fence) -> int:
    rows = 0
    while True:
        done = step(stage, fence)
        rows += done
        if done < stage.batch:
            return rows


def sql(statement: str) -> Any:
    with connections["benchmarks"].cursor() as cursor:
        cursor.execute(statement)
