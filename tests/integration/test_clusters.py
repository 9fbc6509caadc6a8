"""Clusters: schemas that share nothing, created, attached to, listed and dropped."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connections, transaction

from cronoq_django.checks import check_atomicity, check_router, check_server
from cronoq_django.conf import conf, serve
from cronoq_django.errors import NotFound, NotOurs
from cronoq_django.leader.election import Election, Identity
from cronoq_django.leader.recovery import Recovery
from cronoq_django.leader.stages import all_stages
from cronoq_django.models import Job, Run
from cronoq_django.models.choices import Outcome, Status, WorkerStatus
from cronoq_django.models.ids import uuid7
from cronoq_django.routers import ClusterRouter, cluster
from cronoq_django.store import session as sessions
from cronoq_django.store.leadership import Ended
from cronoq_django.store.runs import Completion, NewRun, claim_runs, complete_runs, insert_runs, renew_leases
from cronoq_django.store.schema import create_schema, drop_schema, list_schemas
from cronoq_django.store.workers import heartbeat_worker, register_worker

from .conftest import PREFIX

pytestmark = pytest.mark.django_db(transaction=True)

WORKER = uuid7()


def reconnect(alias: str, **options: Any) -> None:
    """Connect anew with other options."""
    connections[alias].close()
    connections.databases[alias]["OPTIONS"].update(options)
    connections[alias].connect()


def execute(sql: str, params: Any = None, *, using: str = "default") -> list[Any]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def test_creating_is_idempotent_and_listed(attach: Callable[..., str]) -> None:
    schema = attach("a")
    assert create_schema(schema) is False
    assert schema in list_schemas()
    assert Job.objects.using(schema).count() == 0
    relations = {
        row[0] for row in execute("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", [schema])
    }
    assert "cronoq_run" in relations
    assert not {name for name in relations if name.startswith(("auth_", "shop_"))}  # ours only


def test_eight_processes_that_create_one_cluster_at_once_make_one(attach: Callable[..., str]) -> None:
    schema = attach("eight", create=False)
    code = (
        "import django; django.setup();"
        "from cronoq_django.store.schema import create_schema;"
        f"print(create_schema({schema!r}))"
    )
    from tests.fault.conftest import database_url

    environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    root = Path(__file__).resolve().parents[2]
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    said = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    assert sorted(said) == ["False"] * 7 + ["True"]
    assert execute("SELECT count(*) FROM django_migrations WHERE app = 'cronoq'", using=schema) == [(1,)]


@pytest.mark.parametrize(
    "name", ["", "Staging", "a b", "1a", "a;drop", 'a"b', "ä", "pg_x", "public", "information_schema", "a" * 64, "a-b"]
)
def test_a_name_that_needs_quoting_is_refused(name: str) -> None:
    for call in (create_schema, drop_schema):
        with pytest.raises(ValueError, match="can't be the name"):
            call(name)
    with pytest.raises(ValueError, match="can't be the name"):
        cluster({}, name)


def test_what_is_not_ours_is_neither_built_into_nor_dropped(attach: Callable[..., str]) -> None:
    """A clean-up script dropped the schema that it was given, and it was the shop's."""
    schema = attach("theirs", create=False)
    execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.orders (id int)")
    with pytest.raises(NotOurs, match="'orders'"):
        create_schema(schema)
    with pytest.raises(NotOurs, match="no cluster"):
        drop_schema(schema)
    execute(f"DROP TABLE {schema}.orders")
    create_schema(schema)
    execute(f"CREATE VIEW {schema}.report AS SELECT 1")
    with pytest.raises(NotOurs, match="'report'"):
        drop_schema(schema)
    execute(f"DROP VIEW {schema}.report")
    drop_schema(schema)
    with pytest.raises(NotFound):
        drop_schema(schema)


def test_a_cluster_with_a_leader_is_not_dropped(attach: Callable[..., str], wait_until: Callable[..., Any]) -> None:
    schema = attach("led")
    election = Election(schema, Identity())
    assert election.try_to_lead() is not None
    with pytest.raises(NotOurs, match="stop it first"):
        drop_schema(schema)
    election.close()
    wait_until(lambda: _dropped(schema), what="the server notices that the leader's session has ended")


def _dropped(schema: str) -> bool:
    try:
        drop_schema(schema)
    except NotOurs:
        return False
    return True


def test_two_clusters_in_one_database_share_nothing(attach: Callable[..., str]) -> None:
    """Staging and production in one database: one leader's lock kept the other from leading."""
    a, b = attach("one"), attach("two")
    elections = [Election(alias, Identity()) for alias in (a, b)]
    fences = [election.try_to_lead() for election in elections]
    assert all(fences)
    held = "SELECT count(DISTINCT (classid, objid)) FROM pg_locks WHERE locktype = 'advisory' AND pid = ANY (%s)"
    assert execute(held, [[election.session.info.backend_pid for election in elections]]) == [(2,)]
    listeners = [sessions.connect(alias, name="listener") for alias in (a, b)]
    for listener in listeners:
        sessions.listen(listener, "pool:default", "leader")
    with connections[a].cursor() as cursor:
        insert_runs(cursor, [NewRun(script="x")])
    Job.objects.using(a).create(name="only-here", script="x", kind="manual")
    assert sessions.wait(listeners[0], 5)
    assert not sessions.wait(listeners[1], 0.2)
    assert Run.objects.using(b).count() == Job.objects.using(b).count() == 0
    with connections[b].cursor() as cursor:
        assert claim_runs(cursor, worker=Identity().id, pool="default", limit=9, lease=timedelta(seconds=9)) == []
    for session in listeners:
        session.close()
    for election in elections:
        election.close()


def test_a_role_without_the_right_to_create_runs_everything(attach: Callable[..., str]) -> None:
    schema = attach("plain")
    role = f"{PREFIX}_plain_role"
    execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
    try:
        execute(
            f"GRANT USAGE ON SCHEMA {schema} TO {role};"
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};"
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
        )
        reconnect(schema, assume_role=role)
        election = Election(schema, Identity())
        fence = election.try_to_lead()
        assert fence is not None
        stages = all_stages(declared_at=election.registered_at)
        Recovery(fence, election.identity, last=Ended(), stages=stages)
        for stage in stages:
            with fence.transaction() as tx:
                stage.step(tx)
        assert Job.objects.using(schema).filter(source="code").exists()
        with sessions.transaction(election.session) as cursor:  # and what enqueuers and workers do
            insert_runs(cursor, [NewRun(script="x")])
            register_worker(
                cursor, worker=WORKER, name="w", host="h", process_id=1, version="1", pools={"default": 1}, scripts=[]
            )
            (claimed,) = claim_runs(cursor, worker=WORKER, pool="default", limit=9, lease=timedelta(seconds=9))
            assert len(renew_leases(cursor, worker=WORKER, lease=timedelta(seconds=9))) == 1
            done = Completion(id=claimed.id, claim=claimed.claim, outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED)
            assert list(complete_runs(cursor, [done]).accepted.values()) == [Status.SUCCEEDED]
            assert heartbeat_worker(cursor, worker=WORKER, status=WorkerStatus.STOPPED) is False
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            election.session.execute("CREATE TABLE more (id int)")
        election.close()
    finally:
        reconnect(schema, assume_role=None)
        execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_path_that_leads_apart_is_refused(attach: Callable[..., str]) -> None:
    """With `search_path = staging, public` the migrations were found applied in public, and staging stayed empty."""
    full, empty = attach("full"), attach("empty", create=False)
    execute(f"CREATE SCHEMA {empty}")
    reconnect(empty, options=f"-c search_path={empty},{full}")
    (message,) = check_server(databases=[empty])
    assert message.id == "cronoq.E005"
    assert f"{empty}, {full}" in message.msg
    with pytest.raises(CommandError, match="would end up apart"):
        call_command("cronoq_status", database=empty)
    reconnect(empty, options=f"-c search_path={full}")
    assert check_server(databases=[empty]) == []


def test_a_path_that_leads_nowhere_is_refused(attach: Callable[..., str]) -> None:
    nowhere = attach("nowhere", create=False)
    (message,) = check_server(databases=[nowhere])
    assert message.id == "cronoq.E006"


def test_the_router_keeps_our_tables_there_and_others_away(attach: Callable[..., str], settings: Any) -> None:
    schema = attach("routed")
    router = ClusterRouter()
    settings.CRONOQ = {**settings.CRONOQ, "DATABASE": schema}
    assert [message.id for message in check_router()] == ["cronoq.W002"]
    settings.DATABASE_ROUTERS = ["cronoq_django.routers.ClusterRouter"]
    assert check_router() == []
    (warning,) = check_atomicity()
    assert f"atomic(using={schema!r})" in (warning.hint or "")
    assert router.db_for_read(Run) == router.db_for_write(Run) == schema
    assert router.db_for_read(User) is None
    assert router.allow_migrate(schema, "cronoq") is True
    assert router.allow_migrate(schema, "auth") is False
    assert router.allow_migrate("default", "cronoq") is False
    assert router.allow_migrate("default", "auth") is None
    with transaction.atomic(using=schema):
        assert Job.objects.using(schema).count() == 0


def test_a_process_works_for_one_cluster(settings: Any) -> None:
    """A worker of staging whose tasks enqueued into production."""
    try:
        serve("staging")
        assert conf().database == "staging"
    finally:
        from cronoq_django import conf as module

        module._process.clear()
        conf.cache_clear()
    assert conf().database == "default"


def test_the_command(attach: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    schema = attach("command", create=False)
    for arguments, said in (
        (["create", schema], "created"),
        (["create", schema], "is up to date"),
        (["list"], schema),
        (["drop", schema], "dropped"),
    ):
        call_command("cronoq_schema", *arguments)
        assert said in capsys.readouterr().out
    for arguments, why in ((["drop", schema], "there is no schema"), (["create", "Bad"], "can't be the name")):
        with pytest.raises(CommandError, match=why):
            call_command("cronoq_schema", *arguments)


def test_a_cluster_that_is_gone_is_an_error_not_another_cluster(attach: Callable[..., str]) -> None:
    schema = attach("gone")
    drop_schema(schema)
    with pytest.raises(ProgrammingError, match="cronoq_run"):
        Run.objects.using(schema).count()
