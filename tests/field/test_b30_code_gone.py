"""A task was renamed, and its rows, still waiting, raised in the fetch: all the worker's threads died of them.

Elsewhere it was the list of the queue that failed at them; and a worker ate the rows that were meant for another one,
which knew the task. Here such a row ends with its reason, once, and is in nobody's way; it can be looked at like any
other, and retried when the code is back; and what somebody else in the cluster knows is left to them.
"""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from cronoq_django import enqueue_many, retry
from cronoq_django.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from cronoq_django.errors import CronoqError
from cronoq_django.models import Job, JobState, Run, Worker
from cronoq_django.models.choices import Reason, Status
from cronoq_django.store.runs import claim_runs, complete_runs
from cronoq_django.worker.executor import Execution
from tests import tasks
from tests.fault.conftest import Fleet

GONE = "app.tasks.gone"
GOOD = 1_000

HEAD = "import time\nfrom pathlib import Path\n\nfrom cronoq_django import Backoff, task\n"
PRESENT = HEAD + "\n@task\ndef present() -> str:\n    return 'present'\n"
COME_BACK = PRESENT + "\n@task\ndef gone(number: int = 0) -> str:\n    return f'back {number}'\n"
OLD_NAME = "\n@task(name='shop.tasks.old_name')\ndef old_name() -> str:\n    return 'old'\n"
WAITING = """
@task
def wait_for(begun: str, path: str) -> None:
    Path(begun).touch()
    while not Path(path).exists():
        time.sleep(0.01)
"""
ONCE = """
from pathlib import Path

mark = Path({mark!r})
if not mark.exists():
    mark.touch()
    raise ConnectionError("not there yet")
"""

Release = Callable[..., dict[str, str]]


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """A release of a project with the app `app`: the environment of its processes. Modules by name, with their text."""

    def make(name: str, **modules: str) -> dict[str, str]:
        app = tmp_path / name / "app"
        app.mkdir(parents=True)
        (app / "__init__.py").touch()
        for module, text in modules.items():
            (app / f"{module}.py").write_text(text)
        (app.parent / "released.py").write_text(
            "from tests.fault.settings import *\n\nINSTALLED_APPS = [*INSTALLED_APPS, 'app']\n"
        )
        return {"PYTHONPATH": str(app.parent), "DJANGO_SETTINGS_MODULE": "released"}

    return make


def make_run(script: str = GONE, **columns: Any) -> Run:
    """A row of code that this process does not have either."""
    return Run.objects.create(**{"trigger": "enqueue", "status": "queued", "script": script, **columns})


def make_job(name: str, **columns: Any) -> Job:
    return Job.objects.create(
        **{"name": name, "script": GONE, "args": [], "cron": "* * * * * *", "overlap": "allow", **columns}
    )


@pytest.fixture
def claims(transactional_db: None) -> Iterator[Callable[[], int]]:
    """How often a run of priority 50 was claimed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE SEQUENCE planted MINVALUE 0 START 0; "  # the first claim is 0, so that the last one is their number
            "SELECT nextval('planted'); "
            "CREATE FUNCTION planted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
            "$$ BEGIN PERFORM nextval('planted'); RETURN NEW; END $$; "
            "CREATE TRIGGER planted BEFORE UPDATE ON cronoq_run FOR EACH ROW "
            "WHEN (NEW.priority = 50 AND OLD.status = 'queued' AND NEW.status = 'running') EXECUTE FUNCTION planted()"
        )

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT last_value FROM planted")
            return int(cursor.fetchone()[0])

    yield count
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION planted() CASCADE; DROP SEQUENCE planted")


def have_ended(*runs: Run) -> Callable[[], bool]:
    ids = [run.pk for run in runs]
    return lambda: not Run.objects.filter(pk__in=ids, finished_at=None).exists()


def states(*runs: Run) -> set[tuple[str, str, int]]:
    """Status, reason and attempts."""
    return set(Run.objects.filter(pk__in=[run.pk for run in runs]).values_list("status", "reason", "attempts"))


SUCCEEDED = (Status.SUCCEEDED, "", 1)
SET_ASIDE = (Status.FAILED, Reason.QUARANTINED, 0)

# Rows that cannot be decoded, and what is said of them
UNDECODABLE: dict[str, tuple[dict[str, Any], str]] = {
    "gone": ({}, "unknown script 'app.tasks.gone'"),
    "never was": ({"script": "os.system", "args": ["true"]}, "unknown script 'os.system'"),
    "no name": ({"script": ""}, "unknown script ''"),
    "no module": ({"script": "gone"}, "unknown script 'gone'"),
    "args an object": ({"script": "tests.tasks.add", "args": {"a": 1}}, "JSON list"),
    "args a number": ({"script": "tests.tasks.add", "args": 7}, "JSON list"),
    "kwargs a list": ({"script": "tests.tasks.add", "args": [1], "kwargs": [2]}, "JSON object"),
    "too many": ({"script": "tests.tasks.add", "args": [1, 2, 3]}, r"add\(a, b=0\) does not take these arguments"),
    "too few": ({"script": "tests.tasks.add"}, "missing a required argument: 'a'"),
    "another name": ({"script": "tests.tasks.add", "kwargs": {"a": 1, "c": 2}}, "unexpected keyword argument 'c'"),
    "gone, and args a text": ({"args": "x"}, "unknown script|JSON list"),
}

undecodable = pytest.mark.parametrize("name", UNDECODABLE)


# With real processes


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b30_a_thousand_good_ones_run_behind_those_that_nobody_knows(
    fleet: Fleet, claims: Callable[[], int], release: Release, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    code = release(
        "code",
        tasks=PRESENT,
        always="raise RuntimeError('no licence')\n",
        leaves="raise SystemExit(3)\n",
        once=ONCE.format(mark=str(tmp_path / "imported")) + PRESENT,
    )
    first = {"priority": 50}
    bad = [make_run(**columns, **first) for columns, _ in UNDECODABLE.values()]
    bad += [make_run(args=[n], **first) for n in range(50)]
    bad += [make_run("app.always.task", **first), make_run("app.leaves.task", **first)]
    due = make_run(status="scheduled", due_at=timezone.now() - timedelta(seconds=1), **first)
    later = make_run(status="scheduled", due_at=timezone.now() + timedelta(days=1), **first)
    once = make_run("app.once.present", **first)
    make_job("known", script="app.tasks.present")
    make_job("unknown")
    good = enqueue_many([tasks.add.bind(n) for n in range(GOOD)])
    fleet.leader(**code)
    worker = fleet.worker(**code)
    succeeded = Run.objects.filter(pk__in=[result.id for result in good], status=Status.SUCCEEDED, attempts=1)
    wait_until(lambda: succeeded.count() == GOOD)
    wait_until(have_ended(*bad, due, once))
    assert states(*bad, due) == {SET_ASIDE}
    assert states(later) == {(Status.SCHEDULED, "", 0)}

    assert len(bad) / 2 < claims() <= len(bad) + 2  # none was claimed again; some the leader ends
    errors = dict(Run.objects.filter(pk__in=[run.pk for run in (*bad, due)]).values_list("script", "error"))
    assert "unknown script 'app.tasks.gone'" in errors[GONE]
    assert "RuntimeError: no licence" in errors["app.always.task"]
    assert "SystemExit: 3" in errors["app.leaves.task"]
    assert Worker.objects.count() == 1  # the same process throughout
    assert worker.is_alive

    # The import that failed once is tried again for the next run.
    assert states(once) == {SET_ASIDE}
    assert "ConnectionError: not there yet" in Run.objects.get(pk=once.pk).error
    again = retry(once)
    wait_until(lambda: Run.objects.filter(pk=again[once.pk], status=Status.SUCCEEDED).exists())

    wait_until(lambda: JobState.objects.filter(job__name="unknown").exclude(error="").exists())
    assert GONE in JobState.objects.get(job__name="unknown").error
    assert not Run.objects.filter(job_name="unknown").exists()
    wait_until(lambda: Run.objects.filter(job_name="known", status=Status.SUCCEEDED).exists())


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b30_when_the_code_is_back_they_can_be_retried_and_its_job_fires_by_itself(
    fleet: Fleet, release: Release, wait_until: Callable[..., Any]
) -> None:
    without, with_it = release("without", tasks=PRESENT), release("with", tasks=COME_BACK)
    make_job("nightly")
    runs = [make_run(args=[number]) for number in range(5)]
    leader, worker = fleet.leader(**without), fleet.worker(**without)
    wait_until(have_ended(*runs))
    wait_until(lambda: JobState.objects.exclude(error="").exists())
    assert states(*runs) == {SET_ASIDE}
    assert not Run.objects.filter(job_name="nightly").exists()
    assert (leader.stop(), worker.stop()) == (0, 0)

    fleet.leader(**with_it)
    fleet.worker(**with_it)
    again = retry(*runs, actor="anna")
    wait_until(lambda: Run.objects.filter(pk__in=again.values(), status=Status.SUCCEEDED).count() == 5)
    for number, run in enumerate(runs):
        new = Run.objects.get(pk=again[run.pk])
        assert (new.result, new.retry_of_id, new.attempts) == (f"back {number}", run.pk, 1)
    assert states(*runs) == {SET_ASIDE}  # what has ended stays as it ended
    wait_until(lambda: Run.objects.filter(job_name="nightly", result__isnull=False).exists())
    assert JobState.objects.get(job__name="nightly").error == ""


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b30_a_tasks_module_that_cannot_be_imported_costs_no_run(
    fleet: Fleet, release: Release, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """That is found out when a worker starts: it ends with the error, and has claimed nothing before."""
    code = release("code", tasks=ONCE.format(mark=str(tmp_path / "imported")) + PRESENT)
    runs = [make_run("app.tasks.present") for _ in range(10)]
    first = fleet.worker(**code)
    assert first.wait() != 0
    assert "ConnectionError: not there yet" in first.output
    assert states(*runs) == {(Status.QUEUED, "", 0)}
    fleet.worker(**code)
    wait_until(have_ended(*runs))
    assert states(*runs) == {SUCCEEDED}


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b30_an_old_worker_leaves_new_tasks_to_the_new_one(
    fleet: Fleet, release: Release, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """The new worker is busy, so that the old one meets every new run first."""
    old = release("old", tasks=PRESENT)
    new = release("new", tasks=f"{PRESENT}{WAITING}\n@task\ndef new(number: int) -> int:\n    return number\n")
    newer = fleet.worker("--pool", "default=1", **new)
    begun, go_on = tmp_path / "begun", tmp_path / "go on"
    busy = make_run("app.tasks.wait_for", args=[str(begun), str(go_on)])
    wait_until(begun.exists)
    older = fleet.worker("--pool", "default=2", **old)
    wait_until(lambda: Worker.objects.filter(status="online").count() == 2)
    runs = [make_run("app.tasks.new", args=[number]) for number in range(20)]
    known = [make_run("app.tasks.present") for _ in range(20)]
    met = Run.objects.filter(script="app.tasks.new", error__contains="unknown script")
    wait_until(met.exists, what="the old worker has met a new run")
    go_on.touch()
    wait_until(have_ended(busy, *runs, *known))
    assert states(*runs, *known) == {SUCCEEDED}
    assert sorted(Run.objects.filter(pk__in=[run.pk for run in runs]).values_list("result", flat=True)) == [*range(20)]
    by_new = set(Run.objects.filter(pk__in=[run.pk for run in runs]).values_list("worker__process_id", flat=True))
    assert len(by_new) == 1
    assert older.is_alive
    assert newer.is_alive


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
def test_b30_a_renamed_task_runs_rows_of_both_names_on_both_sides_of_a_deploy(
    fleet: Fleet, release: Release, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    old = release(
        "old", tasks=PRESENT + "\n@task(name='shop.tasks.old_name')\ndef old_name() -> str:\n    return 'old'\n"
    )
    renamed = "\n@task(aliases=['shop.tasks.old_name', 'app.tasks.older'])\ndef new_name() -> str:\n    return 'new'\n"
    new = release("new", tasks=PRESENT + renamed)
    fleet.worker(**new)
    before = [make_run("shop.tasks.old_name") for _ in range(10)] + [make_run("app.tasks.older")]
    wait_until(have_ended(*before))
    assert states(*before) == {SUCCEEDED}
    assert {run.result for run in Run.objects.filter(pk__in=[run.pk for run in before])} == {"new"}
    fleet.worker(**old)
    wait_until(lambda: Worker.objects.filter(status="online").count() == 2)
    names = ["shop.tasks.old_name", "app.tasks.new_name", "app.tasks.older"]
    mixed = [make_run(name) for name in names * 20]
    wait_until(have_ended(*mixed))
    assert states(*mixed) == {SUCCEEDED}
    of_new = Run.objects.filter(pk__in=[run.pk for run in mixed], script__in=names[1:])
    assert {run.result for run in of_new} == {"new"}


# In one process: what they look like


@pytest.fixture
def client() -> Client:
    from django.contrib.auth.models import User

    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def execute() -> None:
    """Claim what waits, execute it and write the outcomes, as a worker does."""
    with transaction.atomic(), connection.cursor() as cursor:
        claimed = claim_runs(cursor, worker=uuid4(), pool="default", limit=100, lease=timedelta(minutes=1))
        completions = [Execution(run, "here").execute() for run in claimed]
        completed = complete_runs(cursor, [one for one in completions if one is not None])
        assert len(completed.accepted) == len(claimed)


@pytest.mark.django_db
@undecodable
def test_b30_each_ends_with_its_reason_and_has_a_result(name: str) -> None:
    columns, said = UNDECODABLE[name]
    run, backend = make_run(**columns), task_backends["default"]
    waiting = backend.get_result(str(run.pk))
    assert (waiting.status, waiting.attempts, waiting.errors) == (TaskResultStatus.READY, 0, [])
    assert (isinstance(waiting.args, list), isinstance(waiting.kwargs, dict)) == (True, True)
    with pytest.raises(ValueError, match="not finished"):
        _ = waiting.return_value
    execute()
    assert states(run) == {SET_ASIDE}
    waiting.refresh()
    for result in (waiting, backend.get_result(str(run.pk))):
        assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
        (error,) = result.errors
        assert issubclass(error.exception_class, CronoqError)
        with pytest.raises(ValueError, match="Task failed"):
            _ = result.return_value
    run.refresh_from_db()
    assert re.search(said, run.error), run.error


@pytest.mark.django_db
def test_b30_the_result_of_what_is_gone_is_of_no_other_task() -> None:
    result = task_backends["default"].get_result(str(make_run(args=[1], kwargs={"b": 2}).pk))
    assert (result.args, result.kwargs, result.task.script_name) == ([1], {"b": 2}, GONE)
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(result.id)
    with pytest.raises(CronoqError, match="not known"):
        result.task.call()


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["waiting", "ended"])
def test_b30_the_pages_show_them_like_all_others(client: Client, state: str) -> None:
    runs = {name: make_run(**columns) for name, (columns, _) in UNDECODABLE.items()}
    if state == "ended":
        execute()
    page = reverse("admin:cronoq_run_changelist")
    filters = [
        "",
        "?within=all",
        "?within=hour",
        f"?status={'queued' if state == 'waiting' else 'failed'}",
        "?trigger=enqueue",
        "?pool=default",
    ]
    for query in filters:
        content = client.get(page + query).content.decode()
        assert [name for name, run in runs.items() if str(run.pk) not in content] == []
    assert content.count("could not be decoded") == (0 if state == "waiting" else len(runs))
    found = client.get(page, {"q": GONE}).content.decode()
    of_gone = [run for run in runs.values() if run.script == GONE]
    assert [str(run.pk) in found for run in runs.values()] == [run in of_gone for run in runs.values()]
    assert str(runs["gone"].pk) in client.get(page, {"q": str(runs["gone"].pk)}).content.decode()
    other = "failed" if state == "waiting" else "queued"
    assert str(runs["gone"].pk) not in client.get(page, {"status": other}).content.decode()
    for name, run in runs.items():
        run.refresh_from_db()
        response = client.get(reverse("admin:cronoq_run_change", args=[run.pk]))
        assert (name, response.status_code) == (name, 200)
        content = response.content.decode()
        assert ("could not be decoded" in content) == (state == "ended")
        assert f"/press/{'cancel' if state == 'waiting' else 'retry'}/" in content


@pytest.mark.django_db
def test_b30_they_can_be_retried_and_cancelled_from_the_list(client: Client) -> None:
    runs = [make_run(**columns) for name, (columns, _) in UNDECODABLE.items() if name != "no name"]
    execute()
    chosen = {"_selected_action": [str(run.pk) for run in runs], "action": "retry"}
    client.post(reverse("admin:cronoq_run_changelist") + "?within=all", chosen)
    again = list(Run.objects.filter(retry_of__in=runs, status=Status.QUEUED))
    assert len(again) == len(runs)
    for run in again:
        of = next(one for one in runs if one.pk == run.retry_of_id)
        assert (run.script, run.args, run.kwargs) == (of.script, of.args, of.kwargs)
    chosen = {"_selected_action": [str(run.pk) for run in again], "action": "cancel", "confirmed": "yes"}
    client.post(reverse("admin:cronoq_run_changelist") + "?within=all", chosen)
    assert states(*again) == {(Status.CANCELLED, Reason.REQUESTED, 0)}


@pytest.mark.django_db
def test_b30_one_without_a_name_can_be_retried_too(client: Client) -> None:
    """In the INSERT the empty text was NULL: an error page, and the transaction was gone."""
    run = make_run(script="")
    execute()
    response = client.post(reverse("admin:cronoq_run_press", args=[run.pk, "retry"]))
    assert response.status_code == 302
    assert Run.objects.get(retry_of=run).script == ""


@pytest.mark.django_db
def test_b30_a_job_of_what_is_gone_shows_why_it_does_not_fire(client: Client) -> None:
    job = make_job("nightly")
    error = f"script: unknown script {GONE!r}"
    JobState.objects.create(job=job, partition=0, epoch=1, planned_revision=1, error=error)
    shown = f"unknown script &#x27;{GONE}&#x27;"
    assert shown in client.get(reverse("admin:cronoq_job_change", args=[job.pk])).content.decode()
    response = client.get(reverse("admin:cronoq_job_changelist"))
    assert response.status_code == 200
    assert "nightly" in response.content.decode()
    assert Job.objects.get().enabled
