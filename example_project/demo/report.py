"""The report: which slots were due and which were fired, and how the runs ended.

Everything is read from the database and by its clock. Slots are found by walking each job's schedule, not by asking
what the leader had planned.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from django.db import connection
from django.db.models import Count, Min, Q, QuerySet

from cronoq_django.models import Attempt, Job, LeaderTerm, Run, Worker
from cronoq_django.models.choices import OPEN, Kind, Reason, Status, Trigger
from cronoq_django.schedules import first_slot
from example_project.shop import tasks

EXPECTED = {  # status, reason and attempts of the scripts that don't simply succeed
    tasks.send_invoice.script_name: (Status.SUCCEEDED, "", 3),
    tasks.charge_expired_card.script_name: (Status.FAILED, Reason.ERROR, 2),
}


def database_now() -> datetime:
    """The database's clock, by which slots are due."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now


def missing(since: datetime, *, workers: int) -> str:
    """Who of the leader and the workers has not come up since then; nothing when all have."""
    if not LeaderTerm.objects.filter(from_at__gte=since).exists():
        return "the leader"
    return "" if Worker.objects.filter(started_at__gte=since).count() >= workers else "a worker"


def tally(since: datetime) -> str:
    """How it goes, in a line."""
    made = Run.objects.filter(created_at__gte=since).order_by()
    runs = Counter(dict(made.values_list("status").annotate(Count("pk"))))
    fired = made.filter(trigger=Trigger.SLOT).exclude(status=Status.SKIPPED).count()
    waiting = sum(runs[status] for status in OPEN if status != Status.RUNNING)
    return (
        f"slots fired {fired}, runs succeeded {runs[Status.SUCCEEDED]}, running {runs[Status.RUNNING]}, "
        f"waiting {waiting}, failed {runs[Status.FAILED]}"
    )


def unfinished(since: datetime, until: datetime) -> QuerySet[Run]:
    """The runs made in that time that should have ended by now: all but those put off to later by their maker."""
    put_off = Q(status=Status.SCHEDULED, attempts=0, due_at__gt=until)
    return Run.objects.filter(~put_off, created_at__gte=since, created_at__lte=until, status__in=OPEN)


class Report:
    """What happened from `since` to `until`, in `lines`, and what should not have, in `problems`.

    Slots are judged up to `until`; runs are judged all, since whatever was begun must end.
    """

    def __init__(self, since: datetime, until: datetime) -> None:
        self.lines = [f"What happened from {since:%Y-%m-%d %H:%M:%S} to {until:%H:%M:%S} UTC"]
        self.problems: list[str] = []
        self._since = since
        self._until = until
        self._judge_slots()
        self._judge_runs()

    def _judge_slots(self) -> None:
        terms = LeaderTerm.objects.filter(from_at__gte=self._since)
        led_since = terms.aggregate(first=Min("from_at"))["first"]
        if led_since is None:
            self.problems.append("no leader began a term")
            return
        jobs = Job.objects.select_related("state").order_by("name")
        self._table(("job", "due", "fired", "skipped"), (self._judge_job(job, led_since) for job in jobs))

    def _judge_job(self, job: Job, led_since: datetime) -> tuple[str, int, int, int]:
        # Other slots that passed before there was a leader may count as missed, but a one-off is made up for.
        since = max(self._since if job.kind == Kind.ONCE else led_since, job.schedule_changed_at)
        due = set(self._slots(job, since))
        runs = Run.objects.filter(job_id=job.pk, trigger=Trigger.SLOT)
        runs = runs.filter(scheduled_for__gt=since, scheduled_for__lte=self._until)
        fired = Counter(run.scheduled_for for run in runs if run.scheduled_for and run.status != Status.SKIPPED)
        skipped = {run.scheduled_for for run in runs if run.status == Status.SKIPPED}
        self._complain(f"{job.name} was due but not fired", due - fired.keys() - skipped)
        self._complain(f"{job.name} was fired but not due", fired.keys() - due)
        self._complain(f"{job.name} was fired twice", [slot for slot, times in fired.items() if times > 1])
        return job.name, len(due), fired.total(), len(skipped)

    def _slots(self, job: Job, since: datetime) -> Iterator[datetime]:
        """The slots that the job should have had, by its schedule alone."""
        if hasattr(job, "state") and job.state.error:
            self.problems.append(f"{job.name} was set aside: {job.state.error}")
        elif job.enabled:
            slot = first_slot(job.terms, since)
            while slot is not None and slot <= self._until:
                yield slot
                slot = first_slot(job.terms, slot)

    def _judge_runs(self) -> None:
        runs = Run.objects.filter(created_at__gte=self._since).order_by("script", "created_at", "pk")
        shown = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.SKIPPED)
        ended = Counter(runs.values_list("script", "status"))
        scripts = sorted({script for script, _ in ended})
        self._table(
            ("script", *shown), ((_short(script), *(ended[script, status] for status in shown)) for script in scripts)
        )
        self.lines += ["", *(f"  {_story(run)}" for run in runs if run.script in EXPECTED)]
        for run in runs:
            expected = EXPECTED.get(run.script, (Status.SUCCEEDED, "", run.attempts))
            as_expected = run.status == Status.SKIPPED or (run.status, run.reason, run.attempts) == expected
            if run.is_finished and not as_expected:
                self.problems.append(f"run {run.pk}: {_story(run)} {run.error}".rstrip())
        for run in unfinished(self._since, database_now()):
            self.problems.append(f"run {run.pk}: {_story(run)}, and has not ended")

    def _table(self, header: tuple[object, ...], rows: Iterable[tuple[object, ...]]) -> None:
        self.lines.append("")
        for first, *others in (header, *rows):
            self.lines.append(f"  {first:<24}" + "".join(f"{other:>11}" for other in others))

    def _complain(self, what: str, slots: Collection[datetime]) -> None:
        if slots:
            self.problems.append(f"{what}: {', '.join(f'{slot:%H:%M:%S.%f}' for slot in sorted(slots))}")


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _story(run: Run) -> str:
    """How a run went: "send_invoice: succeeded, attempts 2: MailServerBusy, then succeeded"."""
    attempts = [_short(attempt.exception_class) or attempt.outcome for attempt in Attempt.objects.filter(run=run)]
    reason = f" ({run.reason})" if run.reason else ""
    went = f": {', then '.join(attempts)}" if attempts else ""
    return f"{_short(run.script)}: {run.status}{reason}, attempts {run.attempts}{went}"
