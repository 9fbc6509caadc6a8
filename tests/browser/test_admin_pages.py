"""The admin in a real browser, light and dark: no page complains, and the buttons work."""

import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from cronoq_django.models import Attempt, Job, JobState, Leader, Pool, Run, Script, Stage, Worker
from cronoq_django.models.choices import Status, Trigger
from cronoq_django.models.ids import uuid7

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.django_db(transaction=True),
]

ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # playwright keeps an event loop in this thread
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
    else:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Any, live_server: Any) -> Iterator[Any]:
    """A page of a superuser who is logged in. At the end, nothing may have been complained of."""
    User.objects.create_superuser("ada", password="x")
    context = browser.new_context(base_url=live_server.url, color_scheme=request.param)
    page = context.new_page()
    complaints: list[str] = []

    def complain(what: str, url: str) -> None:
        if "favicon" not in url:  # browsers ask for it on their own
            complaints.append(f"{page.url}: {what}: {url}")

    page.on("console", lambda message: complain(message.text, message.location["url"]))
    page.on("pageerror", lambda error: complain(str(error), ""))
    page.on("response", lambda got: complain(str(got.status), got.url) if got.status >= 400 else None)
    # Leaving a page ends what it still loads; that is no failure.
    page.on("requestfailed", lambda lost: None if "ABORTED" in lost.failure else complain(lost.failure, lost.url))
    page.goto("/admin/")
    page.fill("#id_username", "ada")
    page.fill("#id_password", "x")
    page.click("input[type=submit]")
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def rows(transactional_db: None) -> dict[str, Any]:
    """A little of everything."""
    now = timezone.now()
    pool = Pool.objects.create(name="default")
    script = Script.objects.create(name="tests.tasks.add", signature="(a, b=0)", signature_hash="0")
    job = Job.objects.create(
        name="nightly", script="tests.tasks.add", args=[1], cron="30 2 * * *", timezone="Europe/Warsaw"
    )
    JobState.objects.create(job=job, partition=0, planned_revision=1, next_run_at=now, last_slot=now, epoch=1)
    worker = Worker.objects.create(
        name="w1", host="box", process_id=1, version="1", concurrency=4, pools={"default": 4}
    )
    since = {"backend_pid": 1, "backend_start": now, "acquired_at": now, "renewed_at": now, "ttl": timedelta(hours=1)}
    leader = Leader.objects.create(epoch=1, term=uuid7(), coordinator=uuid7(), host="box", **since)
    Stage.objects.create(name="fire", epoch=1, last_run_at=now, duration=timedelta(milliseconds=3), rows=1)
    common = {"script": "tests.tasks.add", "args": [1]}
    queued = Run.objects.create(trigger=Trigger.ENQUEUE, status=Status.QUEUED, **common)
    slot = {"trigger": Trigger.SLOT, "job": job, "job_name": job.name, "scheduled_for": now, "worker": worker}
    end = {"status": Status.FAILED, "reason": "error", "error": "boom", "started_at": now, "finished_at": now}
    failed = Run.objects.create(attempts=3, **common, **slot, **end)
    why = {"outcome": "failed", "exception_class": "ValueError", "error": "boom", "traceback": "Traceback …"}
    Attempt.objects.create(run=failed, number=3, worker=worker, claim=1, started_at=now, ended_at=now, **why)
    return {
        "job": job,
        "run": failed,
        "queued": queued,
        "worker": worker,
        "leader": leader,
        "pool": pool,
        "script": script,
    }


def test_no_page_complains(page: Any, rows: dict[str, Any]) -> None:
    models = ("job", "run", "worker", "leader", "pool", "script")
    job = rows["job"].pk
    visited = [
        "/admin/",
        *(f"/admin/cronoq/{model}/" for model in models),
        *(f"/admin/cronoq/{model}/{rows[model].pk}/change/" for model in models),
        f"/admin/cronoq/run/{rows['queued'].pk}/change/",
        "/admin/cronoq/job/add/",
        f"/admin/cronoq/job/{job}/delete/",
        f"/admin/cronoq/job/{job}/history/",
        f"/admin/cronoq/job/{job}/run/",
        f"/admin/cronoq/job/{job}/revision/1/",
        "/admin/cronoq/run/?status__exact=failed&within=week",
    ]
    for path in visited:
        response = page.goto(path)
        assert response.status == 200, path
        assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth"), f"{path} is too wide"


def test_buttons_run_pause_retry_and_cancel(page: Any, rows: dict[str, Any]) -> None:
    page.goto(f"/admin/cronoq/job/{rows['job'].pk}/change/")
    page.get_by_role("button", name="Run now").click()
    page.locator(".messagelist a").click()
    assert Run.objects.filter(trigger=Trigger.MANUAL, actor="ada").count() == 1
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Yes, cancel").click()
    assert "1 run was cancelled" in page.text_content(".messagelist")
    page.get_by_role("button", name="Retry").click()
    assert Run.objects.exclude(retry_of=None).count() == 1

    page.goto(f"/admin/cronoq/job/{rows['job'].pk}/change/")
    page.get_by_role("button", name="Pause").click()
    assert not Job.objects.get().enabled
    page.get_by_role("button", name="Resume").click()
    assert Job.objects.get().enabled


def test_a_job_is_run_with_other_arguments_and_rolled_back(page: Any, rows: dict[str, Any]) -> None:
    page.goto(f"/admin/cronoq/job/{rows['job'].pk}/change/")
    page.get_by_role("link", name="Run with…").click()
    page.fill("#id_args", "[7]")
    page.get_by_role("button", name="Run now").click()
    assert "runs now" in page.text_content(".messagelist")
    assert Run.objects.get(trigger=Trigger.MANUAL).args == [7]

    Job.objects.update(cron="0 4 * * *", description="Later")
    page.goto(f"/admin/cronoq/job/{rows['job'].pk}/change/")
    page.locator(".cronoq-table a", has_text="1").last.click()
    page.get_by_role("button", name="Roll back to this revision").click()
    assert "is what it was at revision 1" in page.text_content(".messagelist")
    job = Job.objects.get()
    assert (job.cron, job.description, job.revision) == ("30 2 * * *", "", 3)


def test_a_job_is_edited(page: Any, rows: dict[str, Any]) -> None:
    page.goto(f"/admin/cronoq/job/{rows['job'].pk}/change/")
    page.fill("#id_cron", "0 4 * * *")
    Job.objects.update(pool="mail")
    page.get_by_role("button", name="Save and continue editing").click()
    assert "04:00" in page.text_content(".cronoq-facts")
    job = Job.objects.get()
    assert (job.cron, job.pool) == ("0 4 * * *", "mail")
