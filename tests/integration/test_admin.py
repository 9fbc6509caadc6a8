"""The admin: every page shows whatever the rows hold, each action asks for its permission, edits lose nobody's work."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from cronoq_django import enqueue_many
from cronoq_django.admin.paginator import BoundedPaginator
from cronoq_django.models import (
    Attempt,
    Coordinator,
    Job,
    JobRevision,
    JobState,
    Leader,
    LeaderTerm,
    Pool,
    Run,
    RunDetail,
    Script,
    Stage,
    Worker,
)
from cronoq_django.models.choices import REASONS, Outcome, Source, Status, Trigger, WorkerStatus
from cronoq_django.models.ids import uuid7
from tests import tasks

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 7, 12, 0, tzinfo=UTC)
PAGES = ("job", "run", "worker", "leader", "pool", "script")


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:cronoq_{name}", args=args)


def staff(*permissions: str) -> Client:
    """A member of staff with these permissions of ours alone, logged in."""
    user = User.objects.create_user(f"staff{User.objects.count()}", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="cronoq", codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def client() -> Client:
    """A superuser's."""
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def make_job(name: str = "nightly", **columns: Any) -> Job:
    job = Job.objects.create(
        **{"name": name, "script": "tests.tasks.add", "args": [1], "cron": "30 2 * * *", **columns}
    )
    job.refresh_from_db()
    return job


def make_worker(**columns: Any) -> Worker:
    defaults = {
        "name": "w1",
        "host": "box",
        "process_id": 4711,
        "version": "1",
        "concurrency": 4,
        "pools": {"default": 4, "mail": 2},
    }
    return Worker.objects.create(**{**defaults, **columns})


def make_run(status: str = Status.QUEUED, **columns: Any) -> Run:
    now = timezone.now()
    given: dict[str, Any] = {"trigger": Trigger.ENQUEUE, "script": "tests.tasks.add", "args": [1], "status": status}
    if status in REASONS:
        given["reason"] = REASONS[status][0]
    if status == Status.RUNNING:
        given |= {
            "worker": make_worker(),
            "claim": 7,
            "lease_expires_at": now,
            "started_at": now - timedelta(seconds=90),
        }
    if status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.SKIPPED):
        given |= {"finished_at": now, "started_at": now - timedelta(seconds=2)}
    return Run.objects.create(**{**given, **columns})


def sql(statement: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


@pytest.fixture
def everything() -> dict[str, Any]:
    """A row of each kind, in every state, and rows that no code of ours would write."""
    pool = Pool.objects.create(name="mail/odd name", paused=True)
    Script.objects.create(name="tests.tasks.add", signature="(a, b=0)", signature_hash="0", doc="Adds.")
    jobs = [
        make_job("warsaw", timezone="Europe/Warsaw"),
        make_job("every", kind="every", cron="", every=timedelta(minutes=5)),
        make_job("once", kind="once", cron="", run_at=NOW),
        make_job("by hand", kind="manual", cron="", enabled=False),
        make_job("of code", source=Source.CODE),
        make_job("no zone"),
        make_job("no cron"),
        make_job("no script"),
        make_job("no arguments"),
    ]
    sql("UPDATE cronoq_job SET timezone = 'Mars/Olympus' WHERE name = 'no zone'")
    sql("UPDATE cronoq_job SET cron = 'every full moon' WHERE name = 'no cron'")
    sql("UPDATE cronoq_job SET script = 'gone.tasks.f' WHERE name = 'no script'")
    sql("""UPDATE cronoq_job SET args = '5', kwargs = '"\\ud800"' WHERE name = 'no arguments'""")
    for job in jobs[:-1]:
        JobState.objects.create(
            job=job, partition=0, planned_revision=1, next_run_at=NOW, last_slot=NOW, epoch=1, explanation="fired"
        )
    JobState.objects.filter(job__name="no zone").update(error="Mars/Olympus is no time zone")

    runs = [make_run(status, job=jobs[0], job_name="warsaw") for status in Status.values]
    slot = {"trigger": Trigger.SLOT, "scheduled_for": NOW, "job": jobs[0], "job_name": "warsaw", "job_revision": 1}
    runs.append(make_run(Status.SKIPPED, **slot, error="10 slots missed"))
    failed = make_run(Status.FAILED, error="boom " * 50, attempts=2, parent=runs[0], retry_of=runs[1], root=runs[0])
    worker = make_worker(name="w2")
    for number, outcome in enumerate(Outcome.values, 1):
        Attempt.objects.create(
            run=failed, number=number, worker=worker, claim=number, started_at=NOW, ended_at=NOW, outcome=outcome,
            exception_class="ValueError", error="boom", traceback="Traceback …\n<script>alert(1)</script>",
        )  # fmt: skip
    Attempt.objects.create(
        run=failed, number=9, worker_id=uuid7(), claim=9, started_at=NOW, ended_at=NOW, outcome="lost"
    )
    RunDetail.objects.create(run=failed, progress_done=3, progress_total=10, message="<b>three</b>", log="one\ntwo")
    gone = make_run(
        Status.SUCCEEDED,
        job_id=uuid7(),
        job_name="deleted",
        parent_id=uuid7(),
        retry_of_id=uuid7(),
        worker_id=uuid7(),
        tags=["a", "b"],
    )
    strange = make_run(script="\N{PILE OF POO}.<i>", key="k")
    sql(
        "UPDATE cronoq_run SET args = '5', kwargs = %s, backoff = '\"\\ud800\"' WHERE id = %s",
        f"[{'9' * 5000}]",
        strange.pk,
    )
    deep = make_run(Status.SUCCEEDED)
    sql("UPDATE cronoq_run SET result = %s WHERE id = %s", "[" * 6000 + "]" * 6000, deep.pk)

    for status in WorkerStatus.values:
        make_worker(name=status, status=status)
    sql("UPDATE cronoq_worker SET last_heartbeat_at = clock_timestamp() - interval '460 s' WHERE name = 'online'")
    sql("UPDATE cronoq_worker SET pools = '[1]' WHERE name = 'draining'")
    coordinator = Coordinator.objects.create(id=uuid7(), host="box", process_id=1, version="1", status="leading")
    term = {"epoch": 3, "term": uuid7(), "coordinator": coordinator.pk, "host": "box", "backend_pid": 1}
    since = {"backend_start": NOW, "acquired_at": NOW, "renewed_at": NOW, "ttl": timedelta(seconds=10)}
    leader = Leader.objects.create(**term, **since)
    LeaderTerm.objects.create(
        term=uuid7(),
        epoch=2,
        coordinator=uuid7(),
        host="old",
        from_at=NOW,
        until_at=NOW,
        ended="killed",
        recovered={"runs": 3},
    )
    Stage.objects.create(
        name="fire",
        epoch=3,
        last_run_at=NOW,
        duration=timedelta(milliseconds=4),
        rows=2,
        error="no\nroute",
        error_at=NOW,
    )
    return {
        "job": jobs,
        "run": [*runs, failed, gone, strange, deep],
        "worker": list(Worker.objects.all()),
        "leader": [leader],
        "pool": [pool],
        "script": list(Script.objects.all()),
    }


# Every page, whatever the rows hold


def pages_of(everything: dict[str, Any]) -> list[str]:
    lists = [url(f"{model}_changelist") for model in PAGES if model != "leader"]
    details = [url(f"{model}_change", row.pk) for model in PAGES for row in everything[model]]
    jobs = [
        url("job_add"),
        *(url(f"job_{view}", job.pk) for job in everything["job"] for view in ("delete", "history")),
    ]
    queries = ["within=all", "within=hour", "within=nonsense", "q=warsaw", "q=%00", "pool=mail", "trigger__exact=slot"]
    queries += ["status__exact=failed", "status__exact=queued", "status__exact=nonsense", "p=0", "p=99"]
    queries += [f"q={everything['run'][0].pk}", f"job={everything['job'][0].pk}", "job=nonsense"]
    filters = [f"{url('run_changelist')}?{query}" for query in queries]
    return [reverse("admin:index"), *lists, *details, *jobs, *filters]


def test_every_page_shows_whatever_the_rows_hold(client: Client, everything: dict[str, Any]) -> None:
    """One row with a withdrawn zone, or arguments that are no list, took the whole list away."""
    for page in pages_of(everything):
        response = client.get(page, follow="/run/?" in page)
        assert response.status_code == 200, page
        text = response.content.decode()
        assert "<script>alert" not in text
        assert "style=" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL), (
            "a strict Content-Security-Policy refuses it"
        )


def test_people_who_may_only_view_see_every_page(everything: dict[str, Any]) -> None:
    viewer = staff(*(f"view_{model}" for model in PAGES))
    for page in pages_of(everything):
        if "/add/" not in page and "/delete/" not in page:
            response = viewer.get(page, follow="/run/?" in page)
            assert response.status_code == 200, page
            assert "/press/" not in response.content.decode(), page


def test_a_broken_schedule_says_what_is_wrong_with_it(client: Client, everything: dict[str, Any]) -> None:
    text = client.get(url("job_changelist")).content.decode()
    assert "Mars/Olympus is no time zone" in text
    assert "at 02:30" in text
    assert "03:30 CET" not in text  # it is the slot that is shown, not the expression
    assert "13:00 CET" in text
    assert "12:00Z" in text


def test_a_run_says_what_became_of_it(client: Client, everything: dict[str, Any]) -> None:
    failed, gone, strange, _deep = everything["run"][-4:]
    text = client.get(url("run_change", failed.pk)).content.decode()
    for part in (
        "boom boom",
        "Traceback …",
        "ValueError",
        "2 of 3",
        "3 of 10",
        "&lt;b&gt;three",
        "timed out",
        "w2",
        "(gone)",
    ):
        assert part in text or part == "(gone)", part
    text = client.get(url("run_change", gone.pk)).content.decode()
    assert text.count("(gone)") == 3
    assert "a, b" in text
    text = client.get(url("run_change", strange.pk)).content.decode()
    assert "9" * 5000 in text
    assert "\\ud800" in text


def test_a_job_whose_arguments_python_can_not_read_is_told(client: Client) -> None:
    job = make_job()
    sql("UPDATE cronoq_job SET args = %s WHERE id = %s", f"[{'9' * 5000}]", job.pk)
    assert client.get(url("job_changelist")).status_code == 200
    assert "9" * 5000 in client.get(url("job_change", job.pk)).content.decode()  # and can be mended there


def test_silent_workers_and_leaders_are_told(client: Client, everything: dict[str, Any]) -> None:
    text = client.get(url("worker_changelist")).content.decode()
    assert "no heartbeat for 7 min" in text
    assert "default 4, mail 2" in text
    response = client.get(url("leader_changelist"), follow=True)
    assert response.redirect_chain == [(url("leader_change", 1), 302)]
    text = response.content.decode()
    for part in ("nobody leads", "killed", "no\nroute", "leading", "fire"):
        assert part in text


def test_nobody_has_led_yet(client: Client) -> None:
    assert client.get(url("leader_changelist")).status_code == 200


# Queries do not grow with rows


@pytest.mark.parametrize("model", ["job", "run", "worker"])
def test_a_list_takes_as_many_queries_for_many_rows_as_for_one(client: Client, model: str) -> None:
    def fill(count: int) -> None:
        for _ in range(count):
            job = make_job(f"job {uuid7()}")
            JobState.objects.create(job=job, partition=0, planned_revision=1, next_run_at=NOW, epoch=1)
            make_run(Status.SUCCEEDED, trigger=Trigger.SLOT, job=job, scheduled_for=NOW, worker=make_worker())

    def queries() -> int:
        with CaptureQueriesContext(connection) as context:
            assert client.get(url(f"{model}_changelist")).status_code == 200
        return len(context)

    fill(1)
    queries()  # whatever is cached once
    few = queries()
    fill(20)
    assert queries() == few


def test_a_jobs_page_takes_as_many_queries_for_many_runs_as_for_one(client: Client) -> None:
    job = make_job()

    def queries() -> int:
        with CaptureQueriesContext(connection) as context:
            assert client.get(url("job_change", job.pk)).status_code == 200
        return len(context)

    make_run(job=job, trigger=Trigger.MANUAL)
    queries()
    few = queries()
    for number in range(9):
        make_run(Status.RUNNING, job=job, trigger=Trigger.MANUAL)
        Job.objects.filter(pk=job.pk).update(priority=number + 1)
    assert queries() == few


def test_no_list_reads_payloads(client: Client) -> None:
    make_run(Status.FAILED, error="boom")
    with CaptureQueriesContext(connection) as context:
        client.get(url("run_changelist"))
        client.get(url("job_changelist"))
    for query in context:
        for column in ("args", "kwargs", "result", "error", "backoff"):
            assert f'"cronoq_run"."{column}"' not in query["sql"]


def test_deleting_a_job_looks_at_none_of_its_runs(client: Client) -> None:
    job = make_job()
    run = make_run(job=job, job_name=job.name)
    with CaptureQueriesContext(connection) as context:
        assert client.post(url("job_delete", job.pk), {"post": "yes"}).status_code == 302
    assert not [query for query in context if re.match(r'(SELECT|UPDATE|DELETE FROM) "cronoq_run"', query["sql"])]
    assert not Job.objects.exists()
    assert not JobRevision.objects.exists()
    assert Run.objects.get().pk == run.pk


# The filter and the paginator


def test_the_list_shows_open_runs_and_those_that_ended_within_the_last_day(client: Client) -> None:
    week = timedelta(days=6)
    old = make_run(Status.FAILED, finished_at=timezone.now() - week)
    waiting = make_run(created_at=timezone.now() - week)
    recent = make_run(Status.FAILED)

    def shown(query: str) -> set[Any]:
        return {run.pk for run in client.get(f"{url('run_changelist')}?{query}").context["cl"].result_list}

    assert shown("") == {waiting.pk, recent.pk}
    assert shown("within=week") == {old.pk, waiting.pk, recent.pk}
    assert shown("status__exact=failed") == {recent.pk}
    assert shown("status__exact=failed&within=all") == {old.pk, recent.pk}
    assert shown("status__exact=queued&within=hour") == {waiting.pk}
    assert shown(f"q={old.pk}") == {old.pk}, "an id finds its run, whatever the filters say"


def test_small_tables_are_counted_exactly() -> None:
    for _ in range(3):
        make_run()
    assert BoundedPaginator(Run.objects.order_by("-id"), 50).count == 3


def test_what_takes_too_long_to_count_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting three million runs took a second, for each page."""
    make_run()
    monkeypatch.setattr("cronoq_django.admin.paginator.PATIENCE", "1ms")
    slow = Run.objects.extra(where=["pg_sleep(0.1) IS NOT NULL"]).order_by("-id")
    assert BoundedPaginator(slow, 50).count >= 500, "too low an estimate would show all rows on one page"
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",), "the caller's statements are not bounded"
    assert BoundedPaginator(Run.objects.order_by("-id"), 50).count >= 1


# Actions


def press(client: Client, model: str, row: Any, button: str, **data: str) -> Any:
    return client.post(url(f"{model}_press", row.pk, button), data, follow=True)


def select(client: Client, model: str, action: str, *rows: Any, **data: str) -> Any:
    data = {"action": action, "_selected_action": [str(row.pk) for row in rows], "index": "0", **data}
    return client.post(url(f"{model}_changelist"), data, follow=True)


def messages(response: Any) -> str:
    return " ".join(str(message) for message in response.context["messages"])


CASES = [
    ("job", "run_now", "run_job"),
    ("job", "pause", "pause_job"),
    ("job", "resume", "pause_job"),
    ("run", "retry", "retry_run"),
    ("run", "cancel", "cancel_run"),
    ("pool", "pause", "change_pool"),
    ("pool", "resume", "change_pool"),
]


def row_for(model: str, action: str) -> Any:
    match model, action:
        case "job", _:
            return make_job(enabled=action != "resume")
        case "run", _:
            return make_run(Status.FAILED if action == "retry" else Status.QUEUED)
    return Pool.objects.create(name="mail", paused=action == "resume")


def state_of(model: str) -> Any:
    return list({"job": Job, "run": Run, "pool": Pool}[model].objects.order_by("pk").values()), Run.objects.count()


@pytest.mark.parametrize(("model", "action", "permission"), CASES)
def test_without_its_permission_an_action_does_nothing(model: str, action: str, permission: str) -> None:
    """Staff who might only view could cancel."""
    row, others = row_for(model, action), {each for _, _, each in CASES} - {permission}
    other = staff("view_job", "view_run", "view_pool", *others)
    before = state_of(model)
    assert press(other, model, row, action).status_code == 403
    select(other, model, action, row, confirmed="yes")
    assert state_of(model) == before
    assert f"/press/{action}/" not in other.get(url(f"{model}_change", row.pk)).content.decode()


@pytest.mark.parametrize(("model", "action", "permission"), CASES)
@pytest.mark.parametrize("how", [press, select])
def test_with_its_permission_an_action_acts(model: str, action: str, permission: str, how: Any) -> None:
    row, user = row_for(model, action), staff(f"view_{model}", permission)
    before = state_of(model)
    data = {"confirmed": "yes"}
    response = how(user, model, row, action, **data) if how is press else select(user, model, action, row, **data)
    assert response.status_code == 200
    assert state_of(model) != before
    assert messages(response)


def test_buttons_need_post_a_token_and_the_right_to_view(client: Client) -> None:
    job = make_job()
    assert client.get(url("job_press", job.pk, "run_now")).status_code == 405
    assert client.post(url("job_press", job.pk, "delete_selected")).status_code == 404
    assert client.post(url("job_press", uuid7(), "run_now")).status_code == 404
    assert client.post(url("job_press", "nonsense", "run_now")).status_code == 404
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get())
    assert strict.post(url("job_press", job.pk, "run_now")).status_code == 403
    assert staff("run_job").post(url("job_press", job.pk, "run_now")).status_code == 403
    assert "login" in Client().post(url("job_press", job.pk, "run_now")).url
    assert not Run.objects.exists()


def test_run_now_links_to_the_new_run_and_names_the_actor(client: Client) -> None:
    job = make_job(enabled=False)
    response = press(client, "job", job, "run_now")
    run = Run.objects.get()
    assert (run.job_id, run.trigger, run.actor) == (job.pk, Trigger.MANUAL, "ada")
    assert url("run_change", run.pk) in messages(response)


def test_run_now_says_why_it_can_not(client: Client) -> None:
    job = make_job("<b>")
    sql("UPDATE cronoq_job SET script = 'gone.tasks.f' WHERE id = %s", job.pk)
    assert "unknown script" in messages(press(client, "job", job, "run_now"))
    sql("UPDATE cronoq_job SET script = 'tests.tasks.add', args = '5' WHERE id = %s", job.pk)
    response = press(client, "job", job, "run_now")
    assert "was not run" in messages(response)
    assert "<b>" not in messages(response)
    assert not Run.objects.exists()


def test_pausing_a_job_is_recorded_as_the_users(client: Client) -> None:
    job = make_job(source=Source.CODE)
    press(client, "job", job, "pause")
    job.refresh_from_db()
    assert (job.enabled, job.source) == (False, Source.CODE), "a pause does not adopt"
    assert JobRevision.objects.filter(job=job).first().changed_by == "ada"


def test_retrying_makes_new_runs_and_leaves_open_ones_alone(client: Client) -> None:
    failed, queued = make_run(Status.FAILED, args=[1, 2]), make_run()
    response = select(client, "run", "retry", failed, queued)
    new = Run.objects.get(retry_of=failed.pk)
    assert (new.args, new.actor, new.status) == ([1, 2], "ada", Status.QUEUED)
    assert url("run_change", new.pk) in messages(response)
    assert "1 is still open" in messages(response)


def test_cancelling_asks_first_and_tells_what_became_of_each(client: Client) -> None:
    queued, running, ended = make_run(), make_run(Status.RUNNING), make_run(Status.SUCCEEDED)
    response = select(client, "run", "cancel", queued, running, ended)
    assert "Yes, cancel" in response.content.decode()
    assert Run.objects.get(pk=queued.pk).status == Status.QUEUED
    form = re.search(
        r'<form method="post" action="([^"]*within=all)"(.*?)</form>', response.content.decode(), re.DOTALL
    )
    assert form
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form[2]):
        fields.setdefault(name, []).append(value)
    response = client.post(form[1], fields, follow=True)
    assert messages(response) == "1 run was cancelled. 1 was asked to stop. 1 could not be cancelled."
    queued.refresh_from_db()
    running.refresh_from_db()
    assert (queued.status, queued.error) == (Status.CANCELLED, "Cancelled by ada.")
    assert running.cancel_requested_at is not None


def test_an_action_takes_no_more_than_it_can_chew(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "Select all" of two million failed runs loaded them all."""
    monkeypatch.setattr("cronoq_django.admin.run.AT_ONCE", 2)
    runs = [make_run(Status.FAILED) for _ in range(3)]
    response = select(client, "run", "retry", *runs, select_across="1")
    assert "Only the newest 2" in messages(response)
    assert set(Run.objects.exclude(retry_of=None).values_list("retry_of", flat=True)) == {runs[1].pk, runs[2].pk}


def test_history_is_read_only(client: Client, everything: dict[str, Any]) -> None:
    for model in ("run", "worker", "leader", "script"):
        row = everything[model][0]
        assert client.get(reverse(f"admin:cronoq_{model}_add")).status_code == 403
        assert client.post(url(f"{model}_delete", row.pk), {"post": "yes"}).status_code == 403
        assert client.post(url(f"{model}_change", row.pk), {"status": "succeeded"}).status_code == 403


# Editing a job


def open_form(client: Client, job: Job | None = None) -> dict[str, Any]:
    """What a browser would post back of the form as it is shown."""
    response = client.get(url("job_change", job.pk) if job else url("job_add"))
    posted: dict[str, Any] = {}
    for bound in response.context["adminform"].form:
        widget = bound.field.widget.get_context(bound.html_name, bound.value(), {})["widget"]
        for part in widget.get("subwidgets", [widget]):
            value = part["value"][0] if isinstance(part["value"], list) else part["value"]
            if part.get("type") != "checkbox":
                posted[part["name"]] = value or ""
            elif part["attrs"].get("checked"):
                posted[part["name"]] = "on"
    return posted


def save(client: Client, job: Job, form: dict[str, Any], **changes: Any) -> Any:
    form = {**form, **changes}
    return client.post(
        url("job_change", job.pk), {name: value for name, value in form.items() if value is not None}, follow=True
    )


def errors(response: Any) -> dict[str, list[str]]:
    return dict(response.context["adminform"].form.errors) if "adminform" in (response.context or {}) else {}


def test_saving_an_untouched_form_changes_nothing(client: Client) -> None:
    odd = {"kwargs": {"b": [1.5, None, "\N{SNOWMAN}"]}, "starts_at": NOW.replace(microsecond=123456)}
    job = make_job(description="two\nlines", jitter=timedelta(milliseconds=5), **odd)
    form = open_form(client, job)
    form["description"] = form["description"].replace("\n", "\r\n")  # as browsers do
    assert not errors(save(client, job, form))
    assert JobRevision.objects.filter(job=job).count() == 1
    before = Job.objects.filter(pk=job.pk).values().get()
    assert before["starts_at"].microsecond == 123456


def test_only_changed_columns_are_written_in_the_users_name(client: Client) -> None:
    job = make_job()
    with CaptureQueriesContext(connection) as context:
        assert not errors(save(client, job, open_form(client, job), cron="0 3 * * *"))
    (update,) = [query["sql"] for query in context if query["sql"].startswith('UPDATE "cronoq_job"')]
    assert re.findall(r'"(\w+)" = ', update.split("WHERE")[0]) == ["cron"]
    revision = JobRevision.objects.filter(job=job).first()
    assert (revision.number, revision.changed_by) == (2, "ada")


def test_somebody_elses_change_of_another_field_survives(client: Client) -> None:
    """The form saved all columns, and so undid a pause pressed while it was open."""
    job = make_job()
    form = open_form(client, job)
    Job.objects.filter(pk=job.pk).update(enabled=False, pool="mail", timeout=timedelta(seconds=5))
    assert not errors(save(client, job, form, cron="0 3 * * *"))
    job.refresh_from_db()
    assert (job.enabled, job.pool, job.cron, job.timeout) == (False, "mail", "0 3 * * *", timedelta(seconds=5))


@pytest.mark.parametrize(
    ("changes", "theirs", "shown"),
    [
        ({"cron": "0 3 * * *"}, {"cron": "0 4 * * *"}, ("0 4 * * *", "0 3 * * *")),
        (
            {"starts_at_0": "2026-01-01", "starts_at_1": "00:00:00"},
            {"starts_at": NOW},
            ("2026-03-07 12:00:00", "2026-01-01 00:00:00"),
        ),
        ({"every": "00:05:00"}, {"every": timedelta(minutes=7)}, ("00:07:00", "00:05:00")),
        ({"args": "[1, 2]"}, {"args": [3]}, ("[3]", "[1, 2]")),
        ({"misfire": "skip"}, {"misfire": "all"}, ("run them all", "skip them")),
    ],
)
def test_the_same_field_changed_by_two_is_refused_once_showing_both(
    client: Client, changes: dict[str, str], theirs: dict[str, Any], shown: tuple[str, str]
) -> None:
    job = make_job()
    form = open_form(client, job)
    Job.objects.filter(pk=job.pk).update(**theirs)
    response = save(client, job, form, **changes)
    field = next(iter(theirs))
    assert list(errors(response)) == [field]
    (told,) = errors(response)[field]
    assert f"to “{shown[0]}" in told
    assert f"Yours is “{shown[1]}" in told
    stored = Job.objects.get(pk=job.pk)
    assert getattr(stored, field) == theirs[field]
    # Saving again, knowing it, overwrites.
    form["seen"] = response.context["adminform"].form["seen"].value()
    assert not errors(save(client, job, form, **changes))
    assert getattr(Job.objects.get(pk=job.pk), field) != theirs[field]


def test_both_changing_a_field_alike_is_no_conflict(client: Client) -> None:
    job = make_job()
    form = open_form(client, job)
    Job.objects.filter(pk=job.pk).update(cron="0 3 * * *")
    assert not errors(save(client, job, form, cron="0 3 * * *"))


def test_another_error_on_the_form_does_not_lose_a_change(client: Client) -> None:
    """Django's hidden initial values take the posted date for the initial one after an error, and drop the change."""
    job = make_job()
    form = open_form(client, job) | {"starts_at_0": "2026-01-01", "starts_at_1": "00:00:00"}
    response = save(client, job, form, cron="nonsense")
    assert list(errors(response)) == ["cron"]
    form["seen"] = response.context["adminform"].form["seen"].value()
    assert not errors(save(client, job, form))
    assert Job.objects.get(pk=job.pk).starts_at == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("seen", [None, "", "5", "[" * 100_000])
def test_a_form_without_what_it_was_opened_with_is_refused(client: Client, seen: str | None) -> None:
    job = make_job()
    response = save(client, job, open_form(client, job), seen=seen, cron="0 3 * * *")
    assert "Open the page again" in str(errors(response))


def test_changing_a_job_of_code_adopts_it_unless_it_is_only_paused(client: Client) -> None:
    job = make_job(source=Source.CODE)
    assert "managed by code" in client.get(url("job_change", job.pk)).content.decode()
    save(client, job, open_form(client, job), enabled=None)
    job.refresh_from_db()
    assert (job.enabled, job.source) == (False, Source.CODE)
    response = save(client, job, open_form(client, job), priority="5")
    assert "managed here from now on" in messages(response)
    job.refresh_from_db()
    assert (job.priority, job.source) == (5, Source.ADMIN)


def test_a_stale_form_rewinds_no_scheduling_state(client: Client) -> None:
    """With state in the job's own row, saving a form opened before a firing fired the slot again."""
    job = make_job()
    JobState.objects.create(job=job, partition=0, planned_revision=1, next_run_at=NOW, last_slot=None, epoch=1)
    form = open_form(client, job)
    later = NOW + timedelta(days=1)
    JobState.objects.update(next_run_at=later, last_slot=NOW)
    save(
        client,
        job,
        form,
        priority="3",
        next_run_at=NOW.isoformat(),
        revision="1",
        schedule_revision="1",
        source="code",
        id=str(uuid7()),
    )
    assert JobState.objects.values_list("next_run_at", "last_slot").get() == (later, NOW)
    stored = Job.objects.get()
    assert (stored.pk, stored.priority, stored.revision, stored.schedule_revision, stored.source) == (
        job.pk,
        3,
        2,
        1,
        Source.ADMIN,
    )


@pytest.mark.parametrize(
    ("field", "posted"),
    [
        ("timezone", {"timezone": "Mars/Olympus"}),
        ("timezone", {"timezone": "../../etc/passwd"}),
        ("timezone", {"timezone": "x" * 5000}),
        ("cron", {"cron": "every full moon"}),
        ("cron", {"cron": ""}),
        ("cron", {"cron": "0 0 30 2 *"}),
        ("script", {"script": "os.system"}),
        ("script", {"script": "tests.tasks.nothing"}),
        ("name", {"name": "taken"}),
        ("name", {"name": "a\0b"}),
        ("args", {"args": "{"}),
        ("args", {"args": "5"}),
        ("args", {"args": '"text"'}),
        ("args", {"args": "NaN"}),
        ("args", {"args": "9" * 5000}),
        ("args", {"args": "[" * 100_000}),
        ("args", {"args": "[" * 900 + "]" * 900}),
        ("kwargs", {"kwargs": "[]"}),
        ("kwargs", {"kwargs": '{"no_such": 1}'}),
        ("every", {"kind": "every", "every": "soon"}),
        ("every", {"kind": "every", "every": ""}),
        ("every", {"every": "9" * 30}),
        ("run_at", {"kind": "once"}),
        ("run_at", {"kind": "once", "run_at_0": "2026-02-30", "run_at_1": "12:00"}),
        ("starts_at", {"starts_at_0": "0001-01-01", "starts_at_1": "00:00:00"}),
        ("ends_at", {"ends_at_0": "9999-12-31", "ends_at_1": "23:59:59"}),
        ("priority", {"priority": "99999999999"}),
        ("max_attempts", {"max_attempts": "0"}),
        ("kind", {"kind": "sometimes"}),
        ("dst_gap", {"dst_gap": "jump"}),
    ],
)
@pytest.mark.parametrize("adding", [True, False])
def test_nonsense_is_refused_at_its_field(client: Client, field: str, posted: dict[str, str], adding: bool) -> None:
    make_job("taken")
    job = make_job()
    form = (
        (open_form(client) | {"name": "new", "script": "tests.tasks.add", "args": "[1]", "cron": "@daily"})
        if adding
        else open_form(client, job)
    )
    form |= posted
    response = client.post(url("job_add") if adding else url("job_change", job.pk), form)
    assert response.status_code == 200
    assert field in errors(response)
    assert Job.objects.count() == 2
    assert JobRevision.objects.count() == 2


@pytest.mark.parametrize("blank", ["args", "kwargs", "jitter", "backoff", "description"])
def test_blank_fields_mean_nothing_special(client: Client, blank: str) -> None:
    """A blank jitter became NULL, which its column refuses."""
    job = make_job(script="tests.tasks.surroundings", args=[], backoff={"first": 1}, jitter=timedelta(seconds=5))
    assert not errors(save(client, job, open_form(client, job), **{blank: ""}))
    assert getattr(Job.objects.get(), blank) in ([], {}, timedelta(), None, "")


def test_adding_a_job(client: Client) -> None:
    page = client.get(url("job_add")).content.decode()
    assert '<option value="tests.tasks.add">' in page
    assert '<option value="Europe/Warsaw">' in page
    form = open_form(client) | {"name": "new", "script": "tests.tasks.add", "args": "[1]", "cron": "*/5 * * * *"}
    response = client.post(url("job_add"), form, follow=True)
    assert not errors(response)
    job = Job.objects.get(name="new")
    assert (job.args, job.source, job.enabled) == ([1], Source.ADMIN, True)
    assert JobRevision.objects.get(job=job).changed_by == "ada"


def test_a_broken_module_of_tasks_does_not_take_the_page_away(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise SyntaxError("in somebody's tasks")

    monkeypatch.setattr("cronoq_django.registry.autodiscover", fails)
    assert client.get(url("job_change", make_job().pk)).status_code == 200


def test_the_page_of_a_job_previews_its_slots_around_a_clock_change(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(timezone="America/New_York", ends_at=datetime(2025, 3, 10, 12, tzinfo=UTC))
    monkeypatch.setattr("django.utils.timezone.now", lambda: datetime(2025, 3, 7, 12, tzinfo=UTC))
    slots = client.get(url("job_change", job.pk)).context["slots"]
    assert [(re.sub(r"<[^>]*>", "", slot), note) for slot, note in slots] == [
        ("2025-03-08 02:30 EST 2025-03-08 07:30Z", ""),
        ("2025-03-09 03:00 EDT 2025-03-09 07:00Z", "02:30 does not exist on this day: fires at 03:00"),
        ("2025-03-10 02:30 EDT 2025-03-10 06:30Z", ""),
    ]


def test_a_pools_description_is_edited_without_undoing_a_pause(client: Client) -> None:
    pool = Pool.objects.create(name="mail")
    client.get(url("pool_change", pool.pk))
    Pool.objects.update(paused=True)
    client.post(url("pool_change", pool.pk), {"description": "Invoices"})
    pool.refresh_from_db()
    assert (pool.description, pool.paused) == ("Invoices", True)


def test_the_fingerprints_on_a_page_stay_small(client: Client) -> None:
    job = make_job(kwargs={"b": "x" * 100_000})
    seen = client.get(url("job_change", job.pk)).context["adminform"].form["seen"].value()
    assert len(seen) < 2000
    assert set(json.loads(seen)) >= {"name", "cron", "kwargs"}


def test_a_run_shows_its_key_and_what_waits(client: Client) -> None:
    load = tasks.add.using(key="load-17", tags=["billing"]).bind(1)
    report = tasks.echo.using(after=[load]).bind("2026-12")
    enqueue_many([load, report])
    page = client.get(url("run_change", load.id)).content.decode()
    assert "load-17" in page
    assert "Wait for this one" in page
    assert str(report.id) in page
    page = client.get(url("run_change", report.id)).content.decode()
    assert "Waits for" in page
    assert "Wait for this one" not in page
    assert str(load.id) in page
