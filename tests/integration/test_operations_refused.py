"""What each operation refuses: the error names the argument, and nothing at all has happened."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError
from django.db import connections

from cronoq_django import store
from cronoq_django.errors import Duplicate, NotFound, Quarantined, Stale
from cronoq_django.models.choices import Outcome, Status
from cronoq_django.store.runs import Completion

from .test_operations import CLAIM, ENDED, JOB, NAMES, QUEUED, RUNNING, WORKER, contents, populate

pytestmark = pytest.mark.django_db(transaction=True)

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
FAR = datetime(9999, 12, 31, tzinfo=UTC)
NOBODY = uuid4()
INVALID = (TypeError, ValueError, ValidationError)
Wrong = tuple[tuple[Any, ...], dict[str, Any], Any, str]


def wrong(*args: Any, error: Any = INVALID, match: str, **kwargs: Any) -> Wrong:
    return args, kwargs, error, match


def completion(**columns: Any) -> Completion:
    return Completion(
        **{"id": RUNNING, "claim": CLAIM, "outcome": Outcome.SUCCEEDED, "status": Status.SUCCEEDED, **columns}
    )


def one_job(*more: Any) -> list[Wrong]:
    return [wrong("x", *more, match="job_id"), wrong(NOBODY, *more, error=NotFound, match=str(NOBODY))]


CLAIMING: dict[str, Any] = {"worker": WORKER}
OWNERS = (
    {"worker": "x", "match": "worker"},
    {"worker": None, "match": "worker"},
    {"lease": 0, "match": "lease"},
    {"lease": -5, "match": "lease"},
    {"lease": "long", "match": "lease"},
    {"lease": float("nan"), "match": "lease"},
    {"lease": timedelta.max, "match": "lease"},
    {"suspects": None, "match": "suspects"},
)

REFUSED: dict[str, list[Wrong]] = {
    "upsert_job": [
        wrong("nightly", match="piority", piority=5),
        wrong("new", script="tests.tasks.add", args=[1], kind="manual", match="piority", piority=5),
        wrong("nightly", match="revision", revision=9),
        wrong("nightly", match="priority", priority=101),
        wrong("nightly", match="script", script="no.such"),
        wrong("nightly", match="starts_at", starts_at=NAIVE),
        wrong("nightly", match="misfire_window", misfire_window=-timedelta(1)),
        wrong("a\0b", script="tests.tasks.add", args=[1], kind="manual", match="name"),
        wrong("", script="tests.tasks.add", args=[1], kind="manual", match="name"),
        wrong(5, match="name"),
    ],
    "get_job": one_job(),
    "get_job_by_name": [wrong("no", error=NotFound, match="'no'"), wrong("a\0b", match="name"), wrong(5, match="name")],
    "list_jobs": [wrong(match="enabled", enabled="yes"), wrong(match="pool", pool=5)],
    "list_due_jobs": [wrong(match="now", now=NAIVE), wrong(match="now", now=5), wrong(match="now", now=FAR)],
    "pause_job": one_job(),
    "resume_job": one_job(),
    "run_job_now": [
        *one_job(),
        wrong(JOB, args=[1, 2, 3], error=Quarantined, match="does not take"),
        wrong(JOB, args=[float("nan")], match="args"),
        wrong(JOB, kwargs={"b": object()}, match="kwargs"),
    ],
    "create_run": [
        wrong(5, match="script"),
        wrong("", match="script"),
        wrong("a\0b", match="script"),
        wrong("x" * 501, match="script"),
        wrong("x", args=[{1: 2}], match="args"),
        wrong("x", args=5, match="args"),
        wrong("x", args="ab", match="args"),
        wrong("x", args=["x" * 1_000_001], match="MAX_PAYLOAD"),
        wrong("x", kwargs={"a": {1, 2}}, match="kwargs"),
        wrong("x", kwargs=[1], match="kwargs"),
        wrong("tests.tasks.add", args=[1, 2, 3], error=Quarantined, match="does not take"),
        wrong("x", pool="", match="pool"),
        wrong("x", priority=101, match="priority"),
        wrong("x", priority=1.5, match="priority"),
        wrong("x", due_at=NAIVE, match="due_at"),
        wrong("x", due_at=FAR, match="due_at"),
        wrong("x", expires_at="soon", match="expires_at"),
        wrong("x", timeout=0, match="timeout"),
        wrong("x", timeout=True, match="timeout"),
        wrong("x", max_attempts=0, match="max_attempts"),
        wrong("x", max_attempts=10**10, match="max_attempts"),
        wrong("x", key="", match="key"),
        wrong("x", key="\ud800", match="key"),
        wrong("x", key_for=-1, match="key_for"),
        wrong("x", tags="billing", match="tags"),
        wrong("x", tags=[""], match="tags"),
        wrong("x", tags=["x" * 501], match="tags"),
        wrong("x", actor=5, match="actor"),
        wrong("x", id="x", match="id"),
        wrong("x", key="held", error=Duplicate, match="'held'"),
    ],
    "update_run": [
        wrong("x", CLAIM, status="succeeded", match="no id"),
        wrong(NOBODY, CLAIM, status="succeeded", error=NotFound, match=str(NOBODY)),
        wrong(RUNNING, CLAIM + 1, status="succeeded", error=Stale, match=f"claim: {CLAIM + 1} is not"),
        wrong(RUNNING, CLAIM - 1, status="running", error=Stale, match="claim"),
        wrong(QUEUED, CLAIM, status="succeeded", error=Stale, match="queued"),
        wrong(ENDED, CLAIM, status="failed", error=Stale, match="succeeded"),
        wrong(RUNNING, None, status="succeeded", match="claim"),
        wrong(RUNNING, 0, status="succeeded", match="claim"),
        wrong(RUNNING, CLAIM, status="blocked", match="status"),
        wrong(RUNNING, CLAIM, status="skipped", match="status"),
        wrong(RUNNING, CLAIM, status=None, match="status"),
        wrong(RUNNING, CLAIM, status=["failed"], match="status"),
        wrong(RUNNING, CLAIM, status="failed", reason="overlap", match="reason"),
        wrong(RUNNING, CLAIM, status="succeeded", reason="error", match="reason"),
        wrong(RUNNING, CLAIM, status="running", reason="error", match="reason"),
        wrong(RUNNING, CLAIM, status="queued", reason="error", match="reason"),
        wrong(RUNNING, CLAIM, status="failed", result=1, match="result"),
        wrong(RUNNING, CLAIM, status="running", result=1, match="result"),
        wrong(RUNNING, CLAIM, status="succeeded", result=float("inf"), match="result"),
        wrong(RUNNING, CLAIM, status="succeeded", result={1}, match="result"),
        wrong(RUNNING, CLAIM, status="failed", error_=b"no", match="error"),
        wrong(RUNNING, CLAIM, status="failed", delay=5, match="delay"),
        wrong(RUNNING, CLAIM, status="queued", delay=-5, match="delay"),
        wrong(RUNNING, CLAIM, status="queued", delay="soon", match="delay"),
        wrong(RUNNING, CLAIM, status="queued", counts=None, match="counts"),
    ],
    "get_run": [
        wrong("x", match="no id"),
        wrong(5, match="no id"),
        wrong(match="an id, or key"),
        wrong(NOBODY, error=NotFound, match=str(NOBODY)),
        wrong(key="nobody's", error=NotFound, match="nobody's"),
        wrong(key=5, match="key"),
    ],
    "list_runs_for_job": [
        wrong("x", match="job"),
        wrong(None, match="job"),
        wrong(JOB, limit=0, match="limit"),
        wrong(JOB, limit=-1, match="limit"),
        wrong(JOB, limit="5", match="limit"),
        wrong(JOB, before="x", match="no id"),
    ],
    "list_runs_filtered": [
        wrong(status="done", match="status"),
        wrong(status=["queued", "done"], match="status"),
        wrong(status=5, match="status"),
        wrong(status=[], match="status"),
        wrong(pool="", match="pool"),
        wrong(script=5, match="script"),
        wrong(tags="billing", match="tags"),
        wrong(tags=[5], match="tags"),
        wrong(job="x", match="job"),
        wrong(trigger="hand", match="trigger"),
        wrong(key="", match="key"),
        wrong(created_since=NAIVE, match="created_since"),
        wrong(created_before="now", match="created_before"),
        wrong(finished_since=5, match="finished_since"),
        wrong(finished_before=FAR, match="finished_before"),
        wrong(limit=1001, match="limit"),
        wrong(limit=True, match="limit"),
        wrong(before=5, match="no id"),
    ],
    "claim_next_queued": [
        wrong("", match="pool", **CLAIMING),
        wrong(5, match="pool", **CLAIMING),
        wrong("a\0", match="pool", **CLAIMING),
        wrong(excluded="x", match="excluded", **CLAIMING),
        wrong(excluded=[5], match="excluded", **CLAIMING),
        *(wrong(**{**CLAIMING, **owner}) for owner in OWNERS),
    ],
    "claim_run_by_id": [
        wrong("x", match="no id", **CLAIMING),
        wrong(None, match="no id", **CLAIMING),
        *(wrong(QUEUED, **{**CLAIMING, **owner}) for owner in OWNERS),
    ],
    "claim_runs_by_ids": [
        wrong([QUEUED, "x"], match="no id", **CLAIMING),
        wrong(str(QUEUED), match="ids", **CLAIMING),
        wrong(5, match="ids", **CLAIMING),
        wrong([uuid4() for _ in range(10_001)], match="number of ids", **CLAIMING),
        *(wrong([QUEUED], **{**CLAIMING, **owner}) for owner in OWNERS),
    ],
    "renew_run_lease": [
        wrong("x", CLAIM, match="no id"),
        wrong(NOBODY, CLAIM, error=NotFound, match=str(NOBODY)),
        wrong(RUNNING, CLAIM + 1, error=Stale, match="claim"),
        wrong(ENDED, CLAIM, error=Stale, match="the run is succeeded"),
        wrong(RUNNING, "17", match="claim"),
        wrong(RUNNING, 2**63, match="claim"),
        wrong(RUNNING, CLAIM, lease=0.5, match="lease"),
        wrong(RUNNING, CLAIM, lease=-timedelta(1), match="lease"),
    ],
    "complete_runs": [
        wrong(5, match="completions"),
        wrong([{"id": RUNNING}], match="completions"),
        wrong([completion(), completion()], match="two of them"),
        wrong([completion(), completion(id="x")], match="id"),
        wrong([completion(claim="17")], match="claim"),
        wrong([completion(outcome="good")], match="outcome"),
        wrong([completion(status="running")], match="status"),
        wrong([completion(status="skipped", reason="overlap")], match="status"),
        wrong([completion(status="failed", reason="")], match="reason"),
        wrong([completion(reason="error")], match="reason"),
        wrong([completion(result="{")], match="result"),
        wrong([completion(result='"\0"')], match="result"),
        wrong([completion(result='"\ud800"')], match="result"),
        wrong([completion(result=5)], match="result"),
        wrong([completion(result="[NaN]")], match="result"),
        wrong([completion(result="[" * 100_000)], match="result"),
        wrong([completion(status="failed", reason="error", result="5")], match="result"),
        wrong([completion(error=None)], match="error"),
        wrong([completion(traceback=5)], match="traceback"),
        wrong([completion(counts="no")], match="counts"),
        wrong([completion(delay=timedelta(1))], match="delay"),
        wrong([completion(status="queued", delay=-timedelta(1))], match="delay"),
        wrong([completion(took=-1)], match="took"),
    ],
    "list_revisions": [wrong("x", match="job_id")],
    "rollback_job": [
        *one_job(1),
        wrong(JOB, 2, error=NotFound, match="revision 2"),
        wrong(JOB, -1, match="number"),
        wrong(JOB, "1", match="number"),
    ],
    "upsert_script": [
        wrong("", signature="()", match="name"),
        wrong("a\0b", signature="()", match="name"),
        wrong("x", signature=5, match="signature"),
        wrong("x", signature="x" * 4001, match="signature"),
        wrong("x", signature="()", doc=None, match="doc"),
    ],
    "get_script": [wrong("no", error=NotFound, match="'no'"), wrong("a\0b", match="name"), wrong(5, match="name")],
    "find_due_job_ids_in_partitions": [
        wrong(7, match="partitions"),
        wrong([64], match="partitions"),
        wrong([-1], match="partitions"),
        wrong(["7"], match="partitions"),
        wrong([7], now=NAIVE, match="now"),
        wrong([7], limit=0, match="limit"),
        wrong([7], limit=10_001, match="limit"),
    ],
    "min_next_run_at_in_partitions": [wrong(7, match="partitions"), wrong([7, 64], match="partitions")],
    "get_leader": [],
    "list_partition_assignments": [],
    "register_worker": [
        wrong("", pools={}, match="name"),
        wrong("x", pools=["default"], match="pools"),
        wrong("x", pools={"default": 0}, match="pools"),
        wrong("x", pools={"default": "2"}, match="pools"),
        wrong("x", pools={5: 2}, match="pool"),
        wrong("x", pools={}, worker="x", match="worker"),
        wrong("x", pools={}, host="a\0b", match="host"),
        wrong("x", pools={}, process_id=-1, match="process_id"),
        wrong("x", pools={}, version=1, match="version"),
        wrong("x", pools={}, scripts="x", match="scripts"),
    ],
    "heartbeat_worker": [
        wrong("x", match="worker"),
        wrong(NOBODY, error=NotFound, match=str(NOBODY)),
        wrong(WORKER, status="fine", match="status"),
    ],
    "list_workers": [wrong(status="fine", match="status")],
    "create_schema": [wrong("Bad", match="can't be the name"), wrong(5, match="name")],
    "drop_schema": [
        wrong("a b", match="can't be the name"),
        wrong("nowhere_at_all", error=NotFound, match="nowhere_at_all"),
        wrong("pg_catalog", match="can't be the name"),
    ],
    "list_schemas": [],
    "prune": [
        wrong(retention=5, match="retention"),
        wrong(retention={"queued": 5}, match="retention"),
        wrong(retention={"succeeded": -5}, match="retention"),
        wrong(retention={"succeeded": "long"}, match="retention"),
        wrong(limit=-1, match="limit"),
        wrong(limit="5", match="limit"),
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_wrong_input_is_named_and_changes_nothing(name: str, twins: tuple[str, str]) -> None:
    """What PostgreSQL refuses late, or takes as something else, left half a call behind."""
    here, there = twins
    populate(here, "ours")
    populate(there, "theirs")
    store.create_run("x", key="held", using=here)
    before = contents(here), contents(there)
    for args, given, error, match in REFUSED[name]:
        kwargs = {key.rstrip("_"): value for key, value in given.items()}
        with pytest.raises(error, match=match):
            getattr(store, name)(*args, using=here, **kwargs)
        assert not connections[here].in_atomic_block
    assert (contents(here), contents(there)) == before
