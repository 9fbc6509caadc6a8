"""What a task asks and says of its run: deadline, progress, message, log."""

import logging
from datetime import timedelta

import pytest
from django.utils import timezone

from cronoq_django import current_run
from cronoq_django.models import Run, RunDetail
from cronoq_django.models.choices import Reason, Status
from cronoq_django.tasks.context import LOG_LIMIT, Report
from cronoq_django.testing import run_pending
from tests import tasks

pytestmark = pytest.mark.django_db


def test_progress_message_and_log_are_kept_with_the_run() -> None:
    result = tasks.report.enqueue(3, 10, "half a\0way")
    run_pending()
    detail = RunDetail.objects.get(run=result.id)
    assert (detail.progress_done, detail.progress_total, detail.message) == (
        3,
        10,
        "half a\N{REPLACEMENT CHARACTER}way",
    )
    assert detail.log.splitlines() == ["begun", "from another logger", "3 of 10"]


def test_a_run_that_says_nothing_has_no_row_for_it() -> None:
    tasks.add.enqueue(1)
    run_pending()
    assert not RunDetail.objects.exists()


def test_what_a_failed_attempt_said_is_kept_too() -> None:
    result = tasks.report.using(max_attempts=1).enqueue(-1, 10, "")
    run_pending()
    run = Run.objects.get(pk=result.id)
    assert (run.status, run.reason) == (Status.FAILED, Reason.ERROR)
    assert "done must be a whole number" in run.error
    assert RunDetail.objects.get(run=result.id).log.startswith("begun")


def test_the_deadline_is_the_timeout_from_the_begin() -> None:
    tasks.deadline_in.using(timeout=60).enqueue()
    tasks.deadline_in.enqueue()
    timed, endless = run_pending()
    assert 59 < timed.result <= 60
    assert endless.result is None


def test_of_a_long_log_the_end_is_kept() -> None:
    report = Report()
    for number in range(20_000):
        report.write(f"line {number}")
    said = report.news()
    assert said is not None
    assert LOG_LIMIT - 20 < len(said.log) <= LOG_LIMIT
    assert said.log.endswith("\nline 19999")
    assert said.log.startswith("line ")
    report.write("x" * 2 * LOG_LIMIT)
    said = report.news()
    assert said is not None
    assert said.log == "x" * LOG_LIMIT


def test_news_are_handed_out_once_unless_they_were_not_written() -> None:
    report = Report()
    assert report.news() is None
    report.progress(1, None, None)
    first = report.news()
    assert report.news() is None
    report.keep()
    assert report.news() == first


def test_outside_of_a_run_nothing_is_kept() -> None:
    assert current_run() is None
    logging.getLogger("cronoq_django.run").info("nobody's")
    tasks.add.enqueue(1)
    run_pending()
    assert not RunDetail.objects.exists()
    assert timezone.now() - Run.objects.get().created_at < timedelta(minutes=1)
