"""Each operation, by its name, on two clusters with the same ids in them: it does what it says in one, and neither sees
nor touches the other.

Staging and production in one database had rows of the same ids, copied from a dump: whatever leaves out the alias
somewhere on its way finds, or changes, the wrong one's.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.models import QuerySet
from django.utils.connection import ConnectionDoesNotExist

from cronoq_django import store
from cronoq_django.models import Job, JobState, Leader, PartitionAssignment, Run, Script, Worker
from cronoq_django.models.choices import Outcome, Status, Trigger
from cronoq_django.models.ids import uuid7
from cronoq_django.registry import hash_of
from cronoq_django.store.records import TaskRecord, nanoseconds
from cronoq_django.store.runs import Completion, NewRun, insert_runs

from .conftest import PREFIX

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = (
    *(
        "upsert_job",
        "get_job",
        "get_job_by_name",
        "list_jobs",
        "list_due_jobs",
        "pause_job",
        "resume_job",
        "run_job_now",
    ),
    *("create_run", "update_run", "get_run", "list_runs_for_job", "list_runs_filtered"),
    *("claim_next_queued", "claim_run_by_id", "claim_runs_by_ids", "renew_run_lease", "complete_runs"),
    *("list_revisions", "rollback_job", "upsert_script", "get_script"),
    *("find_due_job_ids_in_partitions", "min_next_run_at_in_partitions", "get_leader", "list_partition_assignments"),
    *("register_worker", "heartbeat_worker", "list_workers", "create_schema", "drop_schema", "list_schemas", "prune"),
)

JOB, QUEUED, RUNNING, ENDED, WORKER, OTHER = (uuid7() for _ in range(6))
CLAIM = 17
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
Call = Callable[..., Any]


def populate(alias: str, mark: str) -> None:
    """The same rows in each cluster; only a text in them says whose they are."""
    Job.objects.using(alias).create(
        id=JOB, name="nightly", description=mark, script="tests.tasks.add", args=[1], kind="cron", cron="0 3 * * *"
    )
    JobState.objects.using(alias).create(job_id=JOB, partition=7, planned_revision=1, next_run_at=LONG_AGO, epoch=1)
    run = {"script": "tests.tasks.add", "args": "[1]", "actor": mark, "job_id": JOB}
    with connections[alias].cursor() as cursor:
        insert_runs(cursor, [NewRun(id=id_, **run) for id_ in (QUEUED, RUNNING, ENDED)])
    rows = Run.objects.using(alias)
    lease = datetime.now(UTC) + timedelta(minutes=1)
    rows.filter(pk=RUNNING).update(status="running", claim=CLAIM, worker=WORKER, lease_expires_at=lease)
    rows.filter(pk=ENDED).update(status="succeeded", finished_at=LONG_AGO)
    Worker.objects.using(alias).create(id=WORKER, name=mark, host="h", process_id=1, version="1", concurrency=1)
    Script.objects.using(alias).create(name="tests.tasks.add", signature=mark, signature_hash=hash_of(mark))
    PartitionAssignment.objects.using(alias).create(partition=7, coordinator=uuid7(), epoch=len(mark))
    Leader.objects.using(alias).create(
        epoch=1, term=uuid7(), coordinator=uuid7(), host=mark, backend_pid=1, backend_start=LONG_AGO,
        acquired_at=LONG_AGO, renewed_at=LONG_AGO, ttl=timedelta(seconds=10),
    )  # fmt: skip


def contents(alias: str) -> dict[str, tuple[int, str]]:
    """What is in each table of a cluster."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
        tables = [row[0] for row in cursor.fetchall()]
        found = {}
        for table in tables:
            cursor.execute(f"SELECT count(*), md5(string_agg(r::text, ';' ORDER BY r::text)) FROM {table} AS r")
            found[table] = cursor.fetchall()[0]
    return found


def is_ours(*records: TaskRecord | None) -> bool:
    return bool(records) and all(one is not None and one.actor == "ours" for one in records)


def columns(rows: QuerySet[Any], name: str) -> list[Any]:
    return list(rows.values_list(name, flat=True))


# What each operation does, in the cluster that it is called for.


def upsert_job(call: Call) -> None:
    assert call("nightly", description="ours", priority=3, actor="anna").priority == 3
    assert call("weekly", script="tests.tasks.add", args=[1], kind="manual").pk != JOB


def get_job(call: Call) -> None:
    assert call(JOB).description == call(str(JOB)).description == "ours"


def get_job_by_name(call: Call) -> None:
    assert call("nightly").description == "ours"


def list_jobs(call: Call) -> None:
    assert columns(call(), "description") == columns(call(enabled=True, pool="default"), "description") == ["ours"]
    assert not call(pool="other").exists()


def list_due_jobs(call: Call) -> None:
    assert columns(call(now=LONG_AGO), "description") == ["ours"]
    assert not call(now=LONG_AGO - timedelta(seconds=1)).exists()


def pause_job(call: Call) -> None:
    assert call(JOB, actor="anna").enabled is False


def resume_job(call: Call) -> None:
    assert call(JOB).description == "ours"


def run_job_now(call: Call) -> None:
    assert call(JOB, args=[2], actor="ours") not in (QUEUED, RUNNING, ENDED)


def create_run(call: Call) -> None:
    id_ = uuid7()
    given: dict[str, Any] = {"args": [1], "kwargs": {"b": 2}, "pool": "mail", "priority": 5, "key": "k", "tags": ["t"]}
    made = call("tests.tasks.add", id=id_, actor="ours", timeout=9, max_attempts=2, key_for=60, **given)
    assert is_ours(made)
    assert (made.id, made.status, made.trigger) == (id_, Status.QUEUED, Trigger.ENQUEUE)
    assert made.timeout == timedelta(seconds=9)
    assert call("tests.tasks.add", id=id_, args=[5]) == made  # the answer to the first one was lost


def update_run(call: Call) -> None:
    assert call(RUNNING, CLAIM, status="running").started_at is not None
    done = call(RUNNING, CLAIM, status="succeeded", result={"x": 1})
    assert is_ours(done)
    assert (done.status, done.result, done.claim, done.attempts) == (Status.SUCCEEDED, {"x": 1}, None, 1)


def get_run(call: Call) -> None:
    assert is_ours(call(QUEUED), call(str(QUEUED)))
    assert call(ENDED).finished_at == nanoseconds(LONG_AGO) == 1_767_225_600_000_000_000


def list_runs_for_job(call: Call) -> None:
    assert is_ours(*call(JOB))
    assert [one.id for one in call(JOB, limit=2)] == [ENDED, RUNNING]
    assert [one.id for one in call(JOB, before=RUNNING)] == [QUEUED]


def list_runs_filtered(call: Call) -> None:
    assert is_ours(*call())
    assert [one.id for one in call(status=["queued", "running"], job=JOB, trigger="enqueue")] == [RUNNING, QUEUED]


def claim_next_queued(call: Call) -> None:
    claimed = call(worker=WORKER, lease=60)
    assert is_ours(claimed)
    assert (claimed.id, claimed.status, claimed.worker_id, claimed.claim) == (QUEUED, Status.RUNNING, WORKER, 1)
    assert call(worker=WORKER) is call("other", worker=WORKER) is None


def claim_run_by_id(call: Call) -> None:
    claimed = call(QUEUED, worker=WORKER)
    assert is_ours(claimed)
    assert (claimed.id, claimed.claim) == (QUEUED, 1)
    assert call(QUEUED, worker=OTHER) is None


def claim_runs_by_ids(call: Call) -> None:
    unknown = uuid7()
    found = call([RUNNING, str(QUEUED), unknown, QUEUED], worker=WORKER)
    assert list(found) == [RUNNING, QUEUED, unknown]
    assert is_ours(found[QUEUED])
    assert found[RUNNING] is found[unknown] is None


def renew_run_lease(call: Call) -> None:
    later = nanoseconds(datetime.now(UTC) + timedelta(minutes=50))
    renewed = call(RUNNING, CLAIM, lease=timedelta(hours=1))
    assert is_ours(renewed)
    assert renewed.lease_expires_at > later


def complete_runs(call: Call) -> None:
    ended = Completion(id=RUNNING, claim=CLAIM, outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED, took=timedelta(1))
    assert call([ended]).accepted == {(RUNNING, CLAIM): Status.SUCCEEDED}
    assert (call([ended]).accepted, call([]).accepted) == ({}, {})


def list_revisions(call: Call) -> None:
    assert [one.snapshot["description"] for one in call(JOB)] == ["ours"]


def rollback_job(call: Call) -> None:
    assert call(JOB, 1, actor="anna").description == "ours"


def upsert_script(call: Call) -> None:
    changed = call("tests.tasks.add", signature="(a, b)", doc="Adds.")
    assert (changed.signature, changed.signature_hash) == ("(a, b)", hash_of("(a, b)"))
    assert call("new", signature="()").first_seen_at <= call("new", signature="()").last_seen_at


def get_script(call: Call) -> None:
    assert (call("tests.tasks.add").signature, call("tests.tasks.add").signature_hash) == ("ours", hash_of("ours"))


def find_due_job_ids_in_partitions(call: Call) -> None:
    assert call([7]) == call(range(64), now=LONG_AGO, limit=1) == [JOB]
    assert call([]) == call([6, 8]) == call([7], now=LONG_AGO - timedelta(seconds=1)) == []


def min_next_run_at_in_partitions(call: Call) -> None:
    assert call([7]) == call([3, 7]) == LONG_AGO
    assert call([6]) is None


def get_leader(call: Call) -> None:
    assert call().host == "ours"


def list_partition_assignments(call: Call) -> None:
    assert columns(call(), "epoch") == [len("ours")]


def register_worker(call: Call) -> None:
    assert call("more", pools={"default": 2, "mail": 1}, worker=OTHER, scripts=["x"]) == OTHER
    assert call("more", pools={}) not in (OTHER, WORKER)


def heartbeat_worker(call: Call) -> None:
    assert call(WORKER) is False
    assert call(WORKER, status="stopped") is False


def list_workers(call: Call) -> None:
    assert columns(call(), "name") == columns(call(status="online"), "name") == ["ours"]
    assert not call(status="lost").exists()


def create_schema(call: Call) -> None:
    assert (call(THIRD), call(THIRD)) == (True, False)


def drop_schema(call: Call) -> None:
    store.create_schema(THIRD)
    assert call(THIRD) is None


def list_schemas(call: Call) -> None:
    assert {f"{PREFIX}_twin_a", f"{PREFIX}_twin_b"} <= set(call())


def prune(call: Call) -> None:
    assert call(limit=0) == {"succeeded": 0, "failed": 0, "cancelled": 0, "skipped": 0, "history": 0}
    assert call(retention={"succeeded": timedelta(days=1)}) == {"succeeded": 1, "history": 0}


THIRD = f"{PREFIX}_twin_c"
WRITES_NOTHING = {"resume_job", "rollback_job", "create_schema", "drop_schema"}  # here: it is so already, or elsewhere


@pytest.fixture
def third() -> Iterator[None]:
    yield
    if THIRD in store.list_schemas():
        store.drop_schema(THIRD)


def test_these_are_all_the_operations() -> None:
    """One was added and nobody asked whether it stays in its cluster."""
    assert sorted(NAMES) == store.__all__
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"`{name}(" in page
        operation = getattr(store, name)
        assert operation.__name__ == name
        assert len(operation.__doc__ or "") > 20


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("turned", [False, True], ids=["a", "b"])
@pytest.mark.parametrize("name", NAMES)
def test_an_operation_works_on_its_own_cluster_and_on_no_other(name: str, turned: bool, twins: tuple[str, str]) -> None:
    here, there = reversed(twins) if turned else twins
    populate(here, "ours")
    populate(there, "theirs")
    before, theirs = contents(here), contents(there)
    called = []

    def call(*args: Any, **kwargs: Any) -> Any:
        called.append(name)
        return getattr(store, name)(*args, using=here, **kwargs)

    globals()[name](call)
    assert called
    assert contents(there) == theirs
    reads = name.startswith(("get_", "list_", "find_", "min_"))
    assert (contents(here) == before) is (reads or name in WRITES_NOTHING)


@pytest.mark.parametrize("name", NAMES)
def test_an_alias_that_is_not_there_is_no_other_cluster(name: str) -> None:
    """A mistyped alias fell back to the default one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        found = getattr(store, name)(*args, using="nowhere", **kwargs)
        return list(found) if isinstance(found, QuerySet) else found

    with pytest.raises(ConnectionDoesNotExist, match="nowhere"):
        globals()[name](call)
