"""Job: a stored schedule. Only people and code write it; what the scheduler remembers of it is in JobState.

Triggers keep `revision`, `schedule_revision` and `schedule_changed_at`, whatever writes the row: `save()`, `update()`,
`bulk_update()` or psql (see `migrations/0001_guards.sql`). A value given for them is ignored.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from cronoq_django import registry
from cronoq_django.errors import Quarantined
from cronoq_django.models.choices import DstGap, DstRepeat, Kind, Misfire, Overlap, Source
from cronoq_django.models.fields import EARLIEST, LATEST, LONGEST, CleanTextField, JsonField, MomentField, SpanField
from cronoq_django.models.ids import uuid7
from cronoq_django.schedules import MOST_FIRED, Backoff, Schedule, ScheduleError, Terms, at, cron, every, manual, zone


class RandomUUID(models.Func):
    """PostgreSQL's own ids, for rows that people insert with SQL."""

    template = "gen_random_uuid()"
    output_field = models.UUIDField()


class Job(models.Model):
    """When a script is due, with which arguments, and under which policies."""

    id = models.UUIDField(primary_key=True, default=uuid7, db_default=RandomUUID(), editable=False)
    name = CleanTextField(_("name"), max_length=200, unique=True, help_text=_("Unique in the cluster; runs keep it."))
    description = CleanTextField(_("description"), max_length=2000, blank=True, default="", db_default="")
    script = CleanTextField(
        _("script"), max_length=500, help_text=_("A registered task, for example shop.tasks.send_invoices.")
    )
    args = JsonField(_("positional arguments"), default=list, blank=True, help_text=_("A JSON list."))
    kwargs = JsonField(_("named arguments"), default=dict, blank=True, help_text=_("A JSON object."))
    source = CleanTextField(
        _("managed by"),
        max_length=10,
        choices=Source,
        default=Source.ADMIN,
        db_default=Source.ADMIN,
        editable=False,
        help_text=_("A job managed by code is kept equal to its declaration until it is changed here."),
    )
    enabled = models.BooleanField(
        _("enabled"),
        default=True,
        db_default=True,
        help_text=_("A paused job has no slots. Resuming does not make up for them."),
    )

    kind = CleanTextField(_("kind"), max_length=10, choices=Kind, default=Kind.CRON, db_default=Kind.CRON)
    cron = CleanTextField(
        _("cron"),
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text=_(
            "minute hour day-of-month month day-of-week, or @daily and the like. If either day field starts with *, "
            "both must match; else one is enough."
        ),
    )
    timezone = CleanTextField(
        _("time zone"), max_length=100, default="UTC", db_default="UTC", help_text=_("For example Europe/Warsaw.")
    )
    every = SpanField(_("every"), null=True, blank=True, help_text=_("Real elapsed time, for example 00:05:00."))
    anchor = MomentField(
        _("anchor"),
        null=True,
        blank=True,
        help_text=_("The interval counts from here; when empty, from the job's creation."),
    )
    run_at = MomentField(_("run at"), null=True, blank=True)
    starts_at = MomentField(_("starts at"), null=True, blank=True, help_text=_("No slot before this."))
    ends_at = MomentField(_("ends at"), null=True, blank=True, help_text=_("No slot after this."))
    jitter = SpanField(
        _("jitter"),
        default=timedelta,
        db_default=timedelta(),
        blank=True,
        help_text=_("Each slot's run starts up to this much later: spreads the load, the same for the same slot."),
    )
    dst_gap = CleanTextField(
        _("skipped local times"),
        max_length=10,
        choices=DstGap,
        blank=True,
        default="",
        db_default="",
        help_text=_("Local times that a clock change skips. Empty: by the expression, as Debian's cron does."),
    )
    dst_repeat = CleanTextField(
        _("repeated local times"),
        max_length=10,
        choices=DstRepeat,
        blank=True,
        default="",
        db_default="",
        help_text=_("Local times that a clock change repeats. Empty: by the expression, as Debian's cron does."),
    )

    pool = CleanTextField(_("pool"), max_length=100, default="default", db_default="default")
    priority = models.SmallIntegerField(
        _("priority"),
        default=0,
        db_default=0,
        validators=[MinValueValidator(-100), MaxValueValidator(100)],
        help_text=_("−100 to 100; higher first."),
    )
    timeout = SpanField(
        _("timeout"),
        null=True,
        blank=True,
        validators=[MinValueValidator(timedelta(milliseconds=1))],
        help_text=_("An attempt that takes longer is ended."),
    )
    max_attempts = models.PositiveIntegerField(
        _("attempts"),
        default=3,
        db_default=3,
        validators=[MinValueValidator(1)],
        help_text=_("All attempts counted, also those lost with their worker."),
    )
    backoff = JsonField(
        _("backoff"),
        null=True,
        blank=True,
        help_text=_('Delays between attempts, for example {"first": 1, "factor": 2, "cap": 3600} (seconds).'),
    )
    concurrency = models.PositiveIntegerField(
        _("concurrency"),
        default=1,
        db_default=1,
        validators=[MinValueValidator(1)],
        help_text=_("Open runs of this job at a time."),
    )
    overlap = CleanTextField(
        _("overlap"), max_length=10, choices=Overlap, default=Overlap.SKIP, db_default=Overlap.SKIP
    )
    misfire = CleanTextField(
        _("missed slots"), max_length=10, choices=Misfire, default=Misfire.LATEST, db_default=Misfire.LATEST
    )
    misfire_window = SpanField(
        _("missed within"), null=True, blank=True, help_text=_("Slots missed by more than this are not made up for.")
    )
    misfire_limit = models.PositiveIntegerField(
        _("at most"),
        default=10,
        db_default=10,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_FIRED)],
        help_text=_("Missed slots made up for at once."),
    )
    pause_on_failure = models.BooleanField(_("pause on failure"), default=False, db_default=False)

    declared_at = models.DateTimeField(null=True, blank=True, editable=False)
    revision = models.PositiveIntegerField(_("revision"), default=0, db_default=0, editable=False)
    schedule_revision = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    schedule_changed_at = models.DateTimeField(db_default=Now(), editable=False)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)
    updated_at = models.DateTimeField(_("updated"), db_default=Now(), editable=False)

    class Meta:
        db_table = "cronoq_job"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        ordering = ("name",)
        permissions = (("run_job", "Can run a job now"), ("pause_job", "Can pause and resume a job"))
        indexes = (
            models.Index(name="cronoq_job_of_code", fields=["id"], condition=Q(source=Source.CODE)),
            models.Index(name="cronoq_job_pausing", fields=["id"], condition=Q(pause_on_failure=True, enabled=True)),
        )
        constraints = (
            models.CheckConstraint(name="cronoq_job_kind", condition=Q(kind__in=Kind.values)),
            models.CheckConstraint(
                name="cronoq_job_schedule",
                condition=(
                    Q(kind=Kind.CRON) & ~Q(cron="")
                    | Q(kind=Kind.EVERY, every__isnull=False, every__gte=timedelta(seconds=1))
                    | Q(kind=Kind.ONCE, run_at__isnull=False)
                    | Q(kind=Kind.MANUAL)
                ),
                violation_error_message=_(
                    "Cron needs its expression, an interval its length (a second or more), a one-off its time."
                ),
            ),
            models.CheckConstraint(
                name="cronoq_job_policies",
                condition=Q(
                    overlap__in=Overlap.values,
                    misfire__in=Misfire.values,
                    source__in=Source.values,
                    dst_gap__in=["", *DstGap.values],
                    dst_repeat__in=["", *DstRepeat.values],
                ),
            ),
            models.CheckConstraint(
                name="cronoq_job_numbers",
                condition=Q(
                    priority__range=(-100, 100),
                    max_attempts__gte=1,
                    concurrency__gte=1,
                    misfire_limit__range=(1, MOST_FIRED),
                ),
            ),
            # What a driver can't read, 'infinity' for one, would stop the leader at this row.
            models.CheckConstraint(
                name="cronoq_job_times",
                condition=Q(
                    **{
                        f"{moment}__range": (EARLIEST, LATEST)
                        for moment in ("anchor", "run_at", "starts_at", "ends_at", "created_at")
                    },
                    **{
                        f"{span}__range": (timedelta(), LONGEST)
                        for span in ("every", "jitter", "timeout", "misfire_window")
                    },
                ),
            ),
            models.CheckConstraint(
                name="cronoq_job_period",
                condition=Q(starts_at__isnull=True) | Q(ends_at__isnull=True) | Q(ends_at__gte=F("starts_at")),
                violation_error_message=_("The end lies before the start."),
            ),
        )

    def __str__(self) -> str:
        return str(self.name)

    @property
    def schedule(self) -> Schedule:
        """The schedule as a value. Raises ScheduleError, with the field, for a row that holds no valid one."""
        return schedule_of(self._columns("created_at", *SCHEDULE))

    @property
    def terms(self) -> Terms:
        """The schedule and the policies that decide its slots. Raises ScheduleError."""
        return terms_of(self._columns("created_at", *SCHEDULE, *POLICIES))

    def _columns(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def clean(self) -> None:
        """Refuse, naming the field, what could never fire or run."""
        problems: dict[str, Any] = {}
        self._clean_schedule(problems)
        self._clean_script(problems)
        if self.backoff is not None:
            try:
                Backoff.read(self.backoff)
            except ValueError as error:
                problems["backoff"] = str(error)
        if problems:
            raise ValidationError(problems)

    def _clean_schedule(self, problems: dict[str, Any]) -> None:
        try:
            zone(self.timezone)
            if self.kind == Kind.EVERY and self._state.adding:
                every(self.every, anchor=self.anchor)  # its anchor will be its creation
            else:
                self.schedule  # noqa: B018
        except ScheduleError as error:
            problems[error.field] = str(error)

    def _clean_script(self, problems: dict[str, Any]) -> None:
        if not isinstance(self.args, list):
            problems["args"] = _("The positional arguments must be a JSON list.")
        if not isinstance(self.kwargs, dict):
            problems["kwargs"] = _("The named arguments must be a JSON object.")
        try:
            script = registry.find(self.script)
        except Quarantined as error:
            problems["script"] = str(error)
            return
        if not {"args", "kwargs"} & problems.keys():
            try:
                script.bind(self.args, self.kwargs)
            except Quarantined as error:
                problems["kwargs"] = str(error)


SCHEDULE = ("kind", "cron", "timezone", "dst_gap", "dst_repeat", "every", "anchor", "run_at")
POLICIES = ("starts_at", "ends_at", "misfire", "misfire_window", "misfire_limit", "overlap", "concurrency")

_cron = lru_cache(maxsize=4096)(cron)  # the leader reads the same jobs again and again


def schedule_of(row: Mapping[str, Any]) -> Schedule:
    """The schedule that these columns of a job hold, with `created_at`. Raises ScheduleError, with the field."""
    match row["kind"]:
        case Kind.CRON:
            return _cron(row["cron"], timezone=row["timezone"], dst_gap=row["dst_gap"], dst_repeat=row["dst_repeat"])
        case Kind.EVERY:
            return every(row["every"], anchor=row["anchor"] or row["created_at"])
        case Kind.ONCE:
            if row["run_at"] is None:
                raise ScheduleError("give the time", field="run_at")
            return at(row["run_at"])
    return manual()


def terms_of(row: Mapping[str, Any]) -> Terms:
    """The schedule and the policies, of columns as they are read; a model object for each cost half of a tick."""
    return Terms(schedule_of(row), **{name: row[name] for name in POLICIES})
