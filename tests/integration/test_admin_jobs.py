"""The pages beside a job's form: run it with other arguments, see what a revision changed, roll back."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from cronoq_django.models import Job, Run
from cronoq_django.store import get_job, upsert_job

pytestmark = pytest.mark.django_db


def client(*permissions: str) -> Client:
    user = User.objects.create_user("anna", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions, content_type__app_label="cronoq"))
    browser = Client()
    browser.force_login(user)
    return browser


def make_job(**columns: Any) -> Job:
    return upsert_job(
        "nightly", **{"script": "tests.tasks.add", "args": [1], "kind": "cron", "cron": "0 3 * * *", **columns}
    )


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:cronoq_job_{name}", args=args)


def test_a_job_is_run_with_other_arguments_by_its_actor() -> None:
    job, browser = make_job(), client("view_job", "run_job")
    assert "Run with…" in browser.get(page("change", job.pk)).content.decode()
    shown = browser.get(page("run_with", job.pk)).content.decode()
    assert "[1]" in shown
    answer = browser.post(page("run_with", job.pk), {"args": "[5]", "kwargs": '{"b": 6}'})
    assert answer.status_code == 302
    run = Run.objects.get()
    assert (run.args, run.kwargs, run.trigger, run.actor, run.job_id) == ([5], {"b": 6}, "manual", "anna", job.pk)
    assert get_job(job.pk).revision == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ("{}", "{}", "Must be a JSON list."),
        ("[1]", "[]", "Must be a JSON object."),
        ("[1, 2, 3]", "{}", "does not take these arguments"),
        ("[1", "{}", "Enter a valid JSON"),
        ("[NaN]", "{}", "stored"),
        ("", "{}", "Must be a JSON list."),
    ],
)
def test_arguments_that_can_not_be_are_refused_at_the_field(args: str, kwargs: str, why: str) -> None:
    job, browser = make_job(), client("view_job", "run_job")
    answer = browser.post(page("run_with", job.pk), {"args": args, "kwargs": kwargs})
    assert answer.status_code == 200
    assert why in answer.content.decode()
    assert not Run.objects.exists()


def test_a_revision_says_what_it_changed_and_what_has_changed_since() -> None:
    job = make_job()
    upsert_job("nightly", cron="0 4 * * *")
    upsert_job("nightly", priority=7, description="<b>later</b>")
    browser = client("view_job", "change_job")
    assert page("revision", job.pk, 2) in browser.get(page("change", job.pk)).content.decode()
    answer = browser.get(page("revision", job.pk, 2))
    assert answer.context["changes"] == [("cron", "0 3 * * *", "0 4 * * *")]
    assert answer.context["since"] == [("description", "", "<b>later</b>"), ("priority", "0", "7")]
    text = answer.content.decode()
    assert "&lt;b&gt;later" in text
    assert "Roll back to this revision" in text
    browser.post(page("revision", job.pk, 1))
    back = get_job(job.pk)
    assert (back.cron, back.priority, back.revision) == ("0 3 * * *", 0, 4)
    assert "Roll back" not in browser.get(page("revision", job.pk, 4)).content.decode()


def test_what_can_not_be_had_any_more_is_said() -> None:
    job = make_job()
    Job.objects.update(script="no.longer")
    make_job(script="tests.tasks.echo")
    answer = client("view_job", "change_job").post(page("revision", job.pk, 2), follow=True)
    assert "script: unknown script" in answer.content.decode()
    assert get_job(job.pk).revision == 3


def test_each_page_asks_for_its_own_permission() -> None:
    job = make_job()
    make_job(priority=1)
    viewer = client("view_job")
    assert "Run with…" not in viewer.get(page("change", job.pk)).content.decode()
    assert viewer.get(page("run_with", job.pk)).status_code == 403
    assert viewer.post(page("run_with", job.pk), {"args": "[1]", "kwargs": "{}"}).status_code == 403
    shown = viewer.get(page("revision", job.pk, 1))
    assert shown.status_code == 200
    assert "Roll back" not in shown.content.decode()
    assert viewer.post(page("revision", job.pk, 1)).status_code == 403
    User.objects.all().delete()
    assert client("view_run").get(page("revision", job.pk, 1)).status_code == 403
    assert not Run.objects.exists()
    assert get_job(job.pk).priority == 1


@pytest.mark.parametrize("path", ["run/", "revision/1/", "revision/99/"])
def test_what_is_not_there_is_not_found(path: str) -> None:
    browser = client("view_job", "run_job", "change_job")
    start = page("changelist")
    for job in ("nonsense", "01a22f46-0750-721b-82f5-50f5b4dc695c"):
        assert browser.get(f"{start}{job}/{path}").status_code == 404
    assert browser.get(f"{start}{make_job().pk}/revision/99/").status_code == 404
