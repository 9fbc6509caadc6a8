"""Run: one unit of work.

            ┌────────── blocked ──────────┐        blocked: waits for prerequisites or for room
 enqueue ──►│                             ▼
            ├──► scheduled ──(due)──► queued ──(claim)──► running ──► succeeded
            └────────────────────────────▲  ▲               │  ├────► failed
                                         │  └──(released)───┘  │
                       scheduled ◄───────┴──(retry, snooze)────┤
                                                               └────► cancelled   skipped: never ran

A terminal state never changes (a trigger refuses it); an operator's retry makes a new run. A run is `running` exactly
while it carries a `claim`, the token from a sequence that proves ownership: whoever holds an older one changes nothing.

There is no foreign-key machinery here: deleting a job with 300,000 runs must cost nothing, and each index that Django
would add costs every enqueue. What a reference points to may be gone; `job_name` stays readable.
"""

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from cronoq_django.models.choices import OPEN, REASONS, TERMINAL, Status, Trigger
from cronoq_django.models.fields import EARLIEST, LATEST, LONGEST, CleanTextField, JsonField, TextListField
from cronoq_django.models.ids import uuid7
from cronoq_django.models.job import Job
from cronoq_django.models.worker import Worker


def reference(to: Any, name: Any) -> Any:
    """A link without constraint and index, to a row that may be gone."""
    return models.ForeignKey(
        to,
        models.DO_NOTHING,
        null=True,
        blank=True,
        db_constraint=False,
        db_index=False,
        related_name="+",
        verbose_name=name,
    )


class Run(models.Model):
    """A script to execute once with some arguments, and what became of it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # What made it
    trigger = CleanTextField(_("made by"), max_length=10, choices=Trigger)
    job = reference(Job, _("job"))
    job_name = CleanTextField(_("job name"), max_length=200, blank=True, default="", db_default="")
    job_revision = models.PositiveIntegerField(
        _("job revision"), null=True, blank=True, help_text=_("The definition it was made from.")
    )
    scheduled_for = models.DateTimeField(
        _("slot"), null=True, blank=True, help_text=_("The instant the job was due, not the one it was noticed.")
    )
    actor = CleanTextField(
        _("actor"), max_length=200, blank=True, default="", db_default="", help_text=_("Who or what asked for it.")
    )
    parent = reference("self", _("parent"))
    root = reference("self", _("root"))
    retry_of = reference("self", _("retry of"))
    # What to do
    script = CleanTextField(_("script"), max_length=500)
    args = JsonField(_("positional arguments"), default=list)
    kwargs = JsonField(_("named arguments"), default=dict)
    pool = CleanTextField(_("pool"), max_length=100, default="default", db_default="default")
    priority = models.SmallIntegerField(_("priority"), default=0, db_default=0)
    timeout = models.DurationField(_("timeout"), null=True, blank=True)
    max_attempts = models.PositiveIntegerField(_("attempts allowed"), default=3, db_default=3)
    backoff = JsonField(_("backoff"), null=True, blank=True)
    tags = TextListField(_("tags"), null=True, blank=True)
    # At most one at a time
    key = CleanTextField(_("key"), null=True, blank=True)
    key_hash = models.BinaryField(null=True, editable=False)
    key_held = models.BooleanField(default=False, db_default=False)
    key_for = models.DurationField(
        _("key kept for"), null=True, blank=True, help_text=_("How long after its end no other run gets its key.")
    )
    key_until = models.DateTimeField(null=True, blank=True)
    # Where it stands
    status = CleanTextField(_("status"), max_length=10, choices=Status)
    reason = CleanTextField(_("reason"), max_length=20, blank=True, default="", db_default="")
    due_at = models.DateTimeField(_("due"), db_default=Now())
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True, help_text=_("Fails if not begun by then."))
    cancel_requested_at = models.DateTimeField(_("cancel requested"), null=True, blank=True)
    attempts = models.PositiveIntegerField(
        _("attempts made"), default=0, db_default=0, help_text=_("Ended executions that count.")
    )
    # Who has it: the claim is the proof, worker and lease say whose and until when
    worker = reference(Worker, _("worker"))
    claim = models.BigIntegerField(_("claim"), null=True, blank=True)
    lease_expires_at = models.DateTimeField(_("lease expires"), null=True, blank=True)
    solo = models.BooleanField(
        default=False, db_default=False, help_text=_("Was lost before it was seen to begin: claimed alone next time.")
    )
    # What came of it
    created_at = models.DateTimeField(_("created"), db_default=Now())
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    result = JsonField(_("result"), null=True, blank=True)
    error = CleanTextField(_("error"), blank=True, default="", db_default="")
    epoch = models.BigIntegerField(_("epoch"), null=True, blank=True, help_text=_("The leader's term that made it."))

    class Meta:
        db_table = "cronoq_run"
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        permissions = (("retry_run", "Can retry a run"), ("cancel_run", "Can cancel a run"))
        # Each further index costs about 155 bytes of WAL and 6 % of the drain: ordinary rows enter the first four,
        # one after the other, and the last.
        indexes = (
            models.Index(
                "pool",
                models.F("priority").desc(),
                "due_at",
                "id",
                name="cronoq_run_queued",
                condition=Q(status=Status.QUEUED),
            ),
            models.Index(name="cronoq_run_scheduled", fields=["due_at"], condition=Q(status=Status.SCHEDULED)),
            models.Index(name="cronoq_run_running", fields=["worker"], condition=Q(status=Status.RUNNING)),
            models.Index(name="cronoq_run_finished", fields=["finished_at"], condition=Q(finished_at__isnull=False)),
            models.Index(name="cronoq_run_blocked", fields=["job"], condition=Q(status=Status.BLOCKED)),
            models.Index(name="cronoq_run_job_open", fields=["job"], condition=Q(job__isnull=False, status__in=OPEN)),
            models.Index(
                name="cronoq_run_expires",
                fields=["expires_at"],
                condition=Q(expires_at__isnull=False, finished_at__isnull=True),
            ),
            models.Index(
                name="cronoq_run_key_until", fields=["key_until"], condition=Q(key_held=True, finished_at__isnull=False)
            ),
            models.Index(name="cronoq_run_key_had", fields=["key_hash"], condition=Q(key_hash__isnull=False)),
            models.Index(name="cronoq_run_parent", fields=["parent"], condition=Q(parent__isnull=False)),
            # and cronoq_run_tags, a GIN index, and cronoq_run_undecodable, in migrations/0001_guards.sql
        )
        constraints = (
            models.UniqueConstraint(
                name="cronoq_run_slot", fields=["job", "scheduled_for"], condition=Q(trigger=Trigger.SLOT)
            ),
            models.UniqueConstraint(name="cronoq_run_key", fields=["key_hash"], condition=Q(key_held=True)),
            models.CheckConstraint(name="cronoq_run_status", condition=Q(status__in=Status.values)),
            models.CheckConstraint(
                name="cronoq_run_reason",
                condition=Q(reason="", status__in=[*OPEN, Status.SUCCEEDED])
                | Q(status=Status.FAILED, reason__in=REASONS[Status.FAILED])
                | Q(status=Status.CANCELLED, reason__in=REASONS[Status.CANCELLED])
                | Q(status=Status.SKIPPED, reason__in=REASONS[Status.SKIPPED]),
            ),
            models.CheckConstraint(
                name="cronoq_run_owned",
                condition=Q(
                    status=Status.RUNNING, claim__isnull=False, worker__isnull=False, lease_expires_at__isnull=False
                )
                | ~Q(status=Status.RUNNING) & Q(claim__isnull=True, lease_expires_at__isnull=True),
            ),
            models.CheckConstraint(
                name="cronoq_run_ended",
                condition=Q(status__in=TERMINAL, finished_at__isnull=False)
                | Q(status__in=OPEN, finished_at__isnull=True),
            ),
            models.CheckConstraint(
                name="cronoq_run_made",
                condition=~Q(trigger=Trigger.SLOT) & Q(trigger__in=Trigger.values)
                | Q(trigger=Trigger.SLOT, job__isnull=False, scheduled_for__isnull=False),
            ),
            # What a driver can't read would stop every claimer at this row.
            models.CheckConstraint(
                name="cronoq_run_times",
                condition=Q(
                    scheduled_for__range=(EARLIEST, LATEST),
                    due_at__range=(EARLIEST, LATEST),
                    created_at__range=(EARLIEST, LATEST),
                    expires_at__range=(EARLIEST, LATEST),
                    timeout__range=(timedelta(), LONGEST),
                ),
            ),
            models.CheckConstraint(
                name="cronoq_run_key_held",
                condition=Q(key_held=False)
                | Q(key_hash__isnull=False) & (Q(finished_at__isnull=True) | Q(key_until__isnull=False)),
            ),
            models.CheckConstraint(
                name="cronoq_run_numbers",
                condition=Q(priority__range=(-100, 100), attempts__range=(0, 10**9), max_attempts__gte=1),
            ),
        )

    def __str__(self) -> str:
        return f"{self.job_name or self.script} {self.id}"

    @property
    def is_finished(self) -> bool:
        return self.status in TERMINAL
