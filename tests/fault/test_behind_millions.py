"""What a worker asks all the time costs the same behind two million finished runs, with statistics or without."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from cronoq_django.models.choices import Outcome, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store.runs import Completion, claim_of, claim_runs, look_for_runs, outcomes_of
from cronoq_django.store.session import Session, connect, transaction
from cronoq_django.store.statements import statement
from cronoq_django.worker.sessions import session_settings

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

FINISHED, WAITING, BATCH = 2_000_000, 1_000, 20
LEASE = timedelta(minutes=10)
MOST = 100 * BATCH  # pages of 8 kB: what is read for a batch, by descents in indexes and row by row


def test_claims_renewals_and_completions_read_what_they_change() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_run SET (autovacuum_enabled = off)")
        insert = "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, finished_at) SELECT "
        insert += "gen_random_uuid(), 'enqueue', 'x', '[]', '{}', %s, %s FROM generate_series(1, %s)"
        cursor.execute(insert, ["succeeded", "2026-01-01T00:00Z", FINISHED])
        cursor.execute(insert, ["queued", None, WAITING])
    try:
        with closing(connect("default", name="worker", settings=session_settings())) as session:
            for analyzed in (False, True):
                if analyzed:
                    session.execute("ANALYZE cronoq_run")
                assert_cheap(session)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE cronoq_run RESET (autovacuum_enabled)")


def assert_cheap(session: Session) -> None:
    worker = uuid7()
    with transaction(session) as cursor:
        owned = claim_runs(cursor, worker=worker, pool="default", limit=BATCH, lease=LEASE)
        marks = look_for_runs(cursor, "default")
    assert len(owned) == BATCH
    ended = [
        Completion(id=one.id, claim=one.claim, outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED, took=timedelta(1))
        for one in owned
    ]
    asked: dict[str, tuple[set[str], dict[str, Any]]] = {
        "look_for_runs": ({"cronoq_run_queued"}, {"pool": "default"}),
        "claim_runs": (
            {"cronoq_run_queued", "cronoq_run_pkey"},
            claim_of(worker=worker, pool="default", limit=BATCH, lease=LEASE, marks=marks),
        ),
        "renew_leases": ({"cronoq_run_running", "cronoq_run_pkey"}, {"worker": worker, "lease": LEASE}),
        "owned_runs": ({"cronoq_run_running"}, {"worker": worker}),
        "mark_started": (
            {"cronoq_run_pkey"},
            {"ids": [o.id for o in owned], "claims": [o.claim for o in owned], "ago": [LEASE] * BATCH},
        ),
        "complete_runs": ({"cronoq_run_pkey"}, {"completions": outcomes_of(ended)}),
        "lock_dependants": (
            {"cronoq_run_pkey", "cronoq_run_blocked"},
            {"prerequisites": [o.id for o in owned], "limit": 500},
        ),
    }
    for name, (indexes, params) in asked.items():
        with transaction(session) as cursor:
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement(name), {"now": None, **params})
            plan = cursor.fetchall()[0][0][0]["Plan"]
        used = list(nodes(plan))
        assert {
            n["Index Name"] for n in used if n.get("Relation Name") == "cronoq_run" and "Index Name" in n
        } <= indexes
        assert "cronoq_run" not in [n["Relation Name"] for n in used if n["Node Type"] == "Seq Scan"], name
        read = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert read < MOST, (name, read)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
