"""cronoq_jobs: look at jobs, and run, pause, resume and roll them back."""

import getpass
import json
from argparse import ArgumentTypeError
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.forms.models import model_to_dict
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from cronoq_django.errors import CronoqError
from cronoq_django.management.cluster import ClusterCommand
from cronoq_django.models import Job
from cronoq_django.schedules import ScheduleError, preview
from cronoq_django.store import (
    get_job_by_name,
    list_jobs,
    list_revisions,
    pause_job,
    resume_job,
    rollback_job,
    run_job_now,
)


class Command(ClusterCommand):
    help = "Look at jobs, and run, pause, resume and roll them back. Exit code 1 if that can't be done."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        does = parser.add_subparsers(dest="does", required=True, metavar="COMMAND")
        one = does.add_parser("list", help="All jobs.")
        _json(one)
        one = does.add_parser("show", help="A job: its columns, what is planned, its revisions.")
        one.add_argument("name")
        _json(one)
        one = does.add_parser("run", help="Make a run of it now, also if it is paused.")
        one.add_argument("name")
        one.add_argument(
            "--args", dest="instead", type=_list, metavar="JSON", help="A list instead of the job's arguments."
        )
        one.add_argument(
            "--kwargs", dest="named", type=_object, metavar="JSON", help="An object instead of its named arguments."
        )
        for does_what, words in (("pause", "Give jobs no slots."), ("resume", "Give them slots again, from now on.")):
            one = does.add_parser(does_what, help=words)
            one.add_argument("names", nargs="+", metavar="name")
        one = does.add_parser("preview", help="The coming slots, in the job's zone and in UTC.")
        one.add_argument("name")
        one.add_argument("--from", dest="after", type=_moment, metavar="TIME", help="Later than this (default: now).")
        one.add_argument("--to", dest="until", type=_moment, metavar="TIME", help="Up to this.")
        one.add_argument("--count", type=int, default=10, help="At most so many (default: 10).")
        _json(one)
        one = does.add_parser("rollback", help="Make a job what it was at a revision.")
        one.add_argument("name")
        one.add_argument("revision", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        alias = self.prepare(options)
        try:
            getattr(self, f"_{options['does']}")(alias, options)
        except ValidationError as error:
            told = (f"{field}: {' '.join(why)}" for field, why in error.message_dict.items())
            raise CommandError("; ".join(told)) from error
        except (CronoqError, ScheduleError, TypeError, ValueError) as error:
            raise CommandError(str(error)) from error

    def _list(self, alias: str, options: dict[str, Any]) -> None:
        jobs = list(list_jobs(using=alias))
        if options["json"]:
            self._dump([_facts(job) for job in jobs])
            return
        for job in jobs:
            self.stdout.write(f"{job.name:<30} {_schedule(job)}; {_planned(job)}")

    def _show(self, alias: str, options: dict[str, Any]) -> None:
        job = get_job_by_name(options["name"], using=alias)
        revisions = list(list_revisions(job.pk, using=alias).values("number", "changed_at", "changed_by"))
        if options["json"]:
            self._dump({**_facts(job), "revisions": revisions})
            return
        self.stdout.write(f"{job.name}: {_schedule(job)}; {_planned(job)}")
        for name, value in model_to_dict(job).items():
            self.stdout.write(f"  {name:<18} {value}")
        for one in revisions:
            self.stdout.write(
                f"  revision {one['number']:<9} {one['changed_at']:%Y-%m-%d %H:%M:%S} {one['changed_by']}"
            )

    def _run(self, alias: str, options: dict[str, Any]) -> None:
        job = get_job_by_name(options["name"], using=alias)
        run = run_job_now(job.pk, args=options["instead"], kwargs=options["named"], actor=_actor(), using=alias)
        self.stdout.write(f"{job.name} runs now: {run}")

    def _pause(self, alias: str, options: dict[str, Any]) -> None:
        for job in [get_job_by_name(name, using=alias) for name in options["names"]]:
            pause_job(job.pk, actor=_actor(), using=alias)
            self.stdout.write(f"{job.name} is paused.")

    def _resume(self, alias: str, options: dict[str, Any]) -> None:
        for job in [get_job_by_name(name, using=alias) for name in options["names"]]:
            resume_job(job.pk, actor=_actor(), using=alias)
            self.stdout.write(f"{job.name} is resumed.")

    def _preview(self, alias: str, options: dict[str, Any]) -> None:
        job = get_job_by_name(options["name"], using=alias)
        after = options["after"] or timezone.now()
        slots = list(preview(job.terms, after, until=options["until"], count=options["count"]))
        if options["json"]:
            self._dump([{"slot": one.slot, "local": one.local, "note": one.note} for one in slots])
            return
        for one in slots:
            note = f"  {one.note}" if one.note else ""
            self.stdout.write(f"{one.local:%a %Y-%m-%d %H:%M:%S %Z}  {one.slot:%Y-%m-%d %H:%M:%S} UTC{note}")
        if not slots:
            self.stdout.write("No slots.")

    def _rollback(self, alias: str, options: dict[str, Any]) -> None:
        job = get_job_by_name(options["name"], using=alias)
        job = rollback_job(job.pk, options["revision"], actor=_actor(), using=alias)
        self.stdout.write(f"{job.name} is what it was at revision {options['revision']}, in revision {job.revision}.")

    def _dump(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, cls=DjangoJSONEncoder, indent=2))


def _json(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="For machines.")


def _facts(job: Job) -> dict[str, Any]:
    state = getattr(job, "state", None)
    return {
        **model_to_dict(job),
        "id": job.pk,
        "revision": job.revision,
        "state": state and model_to_dict(state, exclude=["job", "partition"]),
    }


def _schedule(job: Job) -> str:
    try:
        return job.schedule.explain()
    except ScheduleError as error:
        return f"ERROR: {error}"


def _planned(job: Job) -> str:
    state = getattr(job, "state", None)
    if state is None:
        return "not planned yet"
    if state.error:
        return f"ERROR: {state.error}"
    if not job.enabled:
        return "paused"
    return f"next {state.next_run_at:%Y-%m-%d %H:%M:%S} UTC" if state.next_run_at else state.explanation or "no slot"


def _actor() -> str:
    return f"command:{getpass.getuser()}"


def _moment(text: str) -> datetime:
    moment = parse_datetime(text if "T" in text or " " in text else f"{text}T00:00")
    if moment is None:
        raise ArgumentTypeError(f"{text!r} is no time: write 2026-11-30T09:00+01:00, or without zone for TIME_ZONE's")
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _list(text: str) -> Any:
    return _value(text, list, "[1, 2]")


def _object(text: str) -> Any:
    return _value(text, dict, '{"day": "2026-11-30"}')


def _value(text: str, kind: type, example: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no JSON: {error}") from error
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{text!r} is not like {example}")
    return value
