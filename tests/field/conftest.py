"""A town with a clock of its own: a PostgreSQL whose time the test sets, and leaders that live by it."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.fault.clock import Clock
from tests.fault.conftest import Fleet, fleet, pytest_runtest_makereport  # noqa: F401  (fixtures and hooks)
from tests.fault.server import OwnServer, own_server, provided, server  # noqa: F401  (fixtures)
from tests.field.roads import road, set_aside  # noqa: F401  (fixtures)


class Town(OwnServer):
    """The server whose clock stands where the test puts it, and goes on from there."""

    def __init__(self, home: Path, *, durable: bool) -> None:
        super().__init__(home, durable=durable)
        self._clock = Clock(home)

    def set(self, moment: str) -> None:
        """Put the clock to an instant in UTC, as '2026-01-08 12:00:30'."""
        ahead = datetime.fromisoformat(moment).replace(tzinfo=UTC) - datetime.now(UTC)
        self._clock.set(round(ahead.total_seconds()))

    def _run(self, program: str, *arguments: str) -> Any:
        with mock.patch.dict(os.environ, self._clock.environment if program == "pg_ctl" else {}):
            return super()._run(program, *arguments)

    # What people do, in the rows

    def job(self, name: str, **columns: Any) -> None:
        """Make a job of a task that succeeds; `cron="…"` or `every="30 s"`."""
        kind = next(kind for kind in ("cron", "every", "run_at", "manual") if kind in columns)
        values = {
            "script": "tests.tasks.add",
            "args": "[1]",
            "kwargs": "{}",
            "kind": "once" if kind == "run_at" else kind,
            "overlap": "allow",
            **columns,
        }
        names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
        self.query(
            f"INSERT INTO cronoq_job (id, name, {names}) VALUES (gen_random_uuid(), %s, {marks})",
            name,
            *values.values(),
        )

    def edit(self, name: str, **columns: Any) -> None:
        """Change a job, in the way that knows least of us."""
        assignments = ", ".join(f"{column} = %s" for column in columns)
        self.query(f"UPDATE cronoq_job SET {assignments} WHERE name = %s", *columns.values(), name)

    def slots(self, name: str, where: str = "status <> 'skipped'") -> list[str]:
        """The slots of a job for which there are runs, as '01-08 12:00:30'."""
        rows = self.query(
            "SELECT to_char(scheduled_for AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS') FROM cronoq_run "
            f"WHERE job_name = %s AND trigger = 'slot' AND {where} ORDER BY scheduled_for",
            name,
        )
        return [row[0] for row in rows]

    def next(self, name: str) -> str | None:
        """The next slot of a job, as '01-08 12:00:30', once its last edit is planned; None if it has none."""
        rows = self.query(
            "SELECT to_char(next_run_at AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS') FROM cronoq_job_state AS state "
            "JOIN cronoq_job AS job ON job.id = state.job_id "
            "WHERE job.name = %s AND state.planned_revision = job.schedule_revision "
            "AND NOT EXISTS (SELECT FROM cronoq_job_change AS change WHERE change.job = job.id)",
            name,
        )
        return rows[0][0] if rows else "not planned yet"

    def state(self, name: str, column: str) -> Any:
        return self.value(
            f"SELECT state.{column} FROM cronoq_job_state AS state JOIN cronoq_job AS job ON job.id = state.job_id "
            "WHERE job.name = %s",
            name,
        )


@pytest.fixture(scope="module")
def own_town() -> Iterator[Town]:
    with provided(Town) as town:
        yield town


@pytest.fixture
def town(own_town: Town) -> Town:
    """The server with a new database `app`."""
    own_town.start()
    own_town.remake()
    return own_town


@pytest.fixture
def leader(town: Town, fleet: Fleet, wait_until: Callable[..., Any]) -> Callable[[], Any]:
    """Start a leader, and wait until it leads."""

    def start() -> Any:
        before = town.value("SELECT coalesce(max(epoch), 0) FROM cronoq_leader_term")
        process = fleet.leader(DATABASE_URL=town.app_url)
        wait_until(lambda: town.value("SELECT coalesce(max(epoch), 0) FROM cronoq_leader_term") > before)
        return process

    return start
