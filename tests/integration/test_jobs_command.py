"""cronoq_jobs, as a person and as a script use it."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from cronoq_django.models import Run
from cronoq_django.store import get_job, list_revisions, upsert_job

pytestmark = pytest.mark.django_db


def said(*arguments: str) -> str:
    out = io.StringIO()
    call_command("cronoq_jobs", *arguments, stdout=out)
    return out.getvalue()


def nightly(**columns: Any) -> Any:
    return upsert_job(
        "nightly",
        **{
            "script": "tests.tasks.add",
            "args": [1],
            "kind": "cron",
            "cron": "30 2 * * *",
            "timezone": "Europe/Warsaw",
            **columns,
        },
    )


def test_list_and_show() -> None:
    nightly()
    upsert_job("often", script="tests.tasks.add", args=[1], kind="every", every=timedelta(seconds=5))
    assert "nightly                        at 02:30 every day, Europe/Warsaw; not planned yet" in said("list")
    assert [job["name"] for job in json.loads(said("list", "--json"))] == ["nightly", "often"]
    assert "cron               30 2 * * *" in said("show", "nightly")
    shown = json.loads(said("show", "nightly", "--json"))
    assert (shown["cron"], [one["number"] for one in shown["revisions"]]) == ("30 2 * * *", [1])


def test_preview_says_what_the_clock_does() -> None:
    """Why does it not run at half past two? Because there is none that night."""
    nightly()
    lines = said("preview", "nightly", "--from", "2025-03-29", "--to", "2025-03-31T23:00Z").splitlines()
    assert lines == [
        "Sat 2025-03-29 02:30:00 CET  2025-03-29 01:30:00 UTC",
        "Sun 2025-03-30 03:00:00 CEST  2025-03-30 01:00:00 UTC  02:30 does not exist on this day: fires at 03:00",
        "Mon 2025-03-31 02:30:00 CEST  2025-03-31 00:30:00 UTC",
    ]
    (first,) = json.loads(said("preview", "nightly", "--from", "2025-10-25T12:00+02:00", "--count", "1", "--json"))
    assert first == {
        "slot": "2025-10-26T00:30:00Z",
        "local": "2025-10-26T02:30:00+02:00",
        "note": "02:30 comes twice on this day: fires at the first",
    }
    nightly(ends_at="2025-01-01T00:00Z")
    assert said("preview", "nightly") == "No slots.\n"


def test_run_pause_resume_and_roll_back() -> None:
    job = nightly()
    assert "runs now" in said("run", "nightly", "--args", "[7]", "--kwargs", '{"b": 2}')
    run = Run.objects.get()
    assert (run.args, run.kwargs, run.trigger, run.actor.startswith("command:")) == ([7], {"b": 2}, "manual", True)
    said("pause", "nightly")
    assert not get_job(job.pk).enabled
    said("resume", "nightly")
    assert get_job(job.pk).enabled
    nightly(cron="0 4 * * *")
    assert "revision 5" in said("rollback", "nightly", "1")
    assert get_job(job.pk).cron == "30 2 * * *"
    assert list_revisions(job.pk)[0].changed_by.startswith("command:")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("show", "nope"), "no job with the name 'nope'"),
        (("run", "nightly", "--args", "[1, 2, 3]"), "does not take these arguments"),
        (("run", "nightly", "--args", "{}"), "is not like [1, 2]"),
        (("run", "nightly", "--kwargs", "{"), "is no JSON"),
        (("preview", "nightly", "--from", "soon"), "is no time"),
        (("rollback", "nightly", "9"), "no revision 9"),
        (("pause", "nightly", "nope"), "no job with the name 'nope'"),
    ],
)
def test_what_can_not_be_done_is_said_and_nothing_is_half_done(arguments: tuple[str, ...], why: str) -> None:
    job = nightly()
    with pytest.raises(CommandError) as refused:
        said(*arguments)
    assert why in str(refused.value)
    assert not Run.objects.exists()
    assert get_job(job.pk).revision == 1
