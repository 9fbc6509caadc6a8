"""A scheduler kept a transaction open for as long as its task ran, and PostgreSQL ended it for being idle so long.

It crashed, came back, and was ended again. A session that only listened held an old snapshot, and kept dead rows from
being removed everywhere. (That claims cost the same with such a snapshot, and behind millions of finished runs, is in
tests/fault/test_behind_millions.py.)
"""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.fault.conftest import Fleet
from tests.fault.server import OwnServer
from tests.fault.test_server_trouble import add_jobs, count

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

IS_LONG = int(os.environ.get("CRONOQ_REPEATS", "1")) > 1
LIMIT = 5 if IS_LONG else 1  # seconds that a transaction may be idle
TASK = 30 if IS_LONG else 4  # seconds


class Watch:
    """What sessions of the app keep open: for how long each transaction is idle, or has a snapshot."""

    def __init__(self, server: OwnServer) -> None:
        self._server = server
        self.idle = 0.0  # seconds, the longest
        self.snapshot = 0.0
        self.samples = 0

    def look(self) -> None:
        idle, snapshot = self._server.query(
            "SELECT coalesce(max(age) FILTER (WHERE state ~ '^idle in transaction'), 0)::float8, "
            "coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)) FILTER (WHERE held), 0)::float8 "
            "FROM (SELECT state, xact_start, backend_xmin IS NOT NULL AS held, "
            "extract(epoch FROM clock_timestamp() - state_change) AS age "
            "FROM pg_stat_activity WHERE usename = 'app') AS session"
        )[0]
        self.idle, self.snapshot = max(self.idle, idle), max(self.snapshot, snapshot)
        self.samples += 1


def test_b38_nothing_of_ours_stays_open_while_a_task_takes_its_time(
    fleet: Fleet, server: OwnServer, wait_until: Callable[..., Any]
) -> None:
    server.query(f"ALTER ROLE app SET idle_in_transaction_session_timeout = '{LIMIT}s'")
    add_jobs(server)
    environment = {"DATABASE_URL": server.app_url, "CRONOQ_CONN_MAX_AGE": "null"}
    processes = [fleet.leader(**environment), fleet.leader(**environment), fleet.worker(**environment)]
    wait_until(lambda: count(server, "status = 'succeeded'"))
    runs = [server.enqueue("tests.tasks.count_pools_twice", args=f"[{TASK}]", max_attempts=1) for _ in range(3)]
    watch, begun = Watch(server), time.monotonic()
    done = "SELECT count(*) FROM cronoq_run WHERE id = ANY (%s) AND status = 'succeeded' AND attempts = 1"
    wait_until(lambda: watch.look() or server.value(done, runs) == len(runs), seconds=TASK + 60)
    print(
        f"{watch.samples} looks in {time.monotonic() - begun:.1f} s: the longest idle transaction {watch.idle:.3f} s, "
        f"the longest snapshot {watch.snapshot:.3f} s."
    )
    assert watch.idle < LIMIT
    assert watch.snapshot < 5
    assert not [process.log.name for process in processes if "unavailable" in process.output]
    assert [process.stop() for process in reversed(processes)] == [0, 0, 0]
    assert count(server, "status = 'failed'") == 0
