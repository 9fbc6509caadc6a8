"""The closed sets of words that columns hold. The database checks them too."""

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class Kind(TextChoices):
    """When a job is due."""

    CRON = "cron", _("cron expression")
    EVERY = "every", _("fixed interval")
    ONCE = "once", _("once")
    MANUAL = "manual", _("only by hand")


class Source(TextChoices):
    """Who owns a job's definition."""

    CODE = "code", _("code")
    ADMIN = "admin", _("admin")


class Misfire(TextChoices):
    """What to do about slots that passed while nobody could fire them."""

    SKIP = "skip", _("skip them")
    LATEST = "latest", _("run the newest once")
    ALL = "all", _("run them all, up to the limit")


class Overlap(TextChoices):
    """What to do when a slot is due while earlier runs of the job are open."""

    SKIP = "skip", _("skip the slot")
    QUEUE = "queue", _("wait for the earlier run")
    ALLOW = "allow", _("run beside it")
    REPLACE = "replace", _("cancel the earlier run")


class DstGap(TextChoices):
    """A local time that does not exist on the day of a clock change."""

    SHIFT = "shift", _("right after the gap")
    SKIP = "skip", _("not on that day")


class DstRepeat(TextChoices):
    """A local time that exists twice on the day of a clock change."""

    FIRST = "first", _("the first time")
    LAST = "last", _("the second time")
    BOTH = "both", _("both times")


class Trigger(TextChoices):
    """What made a run."""

    SLOT = "slot", _("schedule")
    MANUAL = "manual", _("by hand")
    ENQUEUE = "enqueue", _("enqueued")


class Status(TextChoices):
    """Where a run stands. See the diagram in `models/run.py`."""

    BLOCKED = "blocked", _("blocked")
    SCHEDULED = "scheduled", _("scheduled")
    QUEUED = "queued", _("queued")
    RUNNING = "running", _("running")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")
    SKIPPED = "skipped", _("skipped")


OPEN = (Status.BLOCKED, Status.SCHEDULED, Status.QUEUED, Status.RUNNING)
TERMINAL = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.SKIPPED)


class Reason(TextChoices):
    """Why a run ended as it did."""

    ERROR = "error", _("the task raised an error")
    TIMEOUT = "timeout", _("out of time")
    LOST = "lost", _("worker lost")
    QUARANTINED = "quarantined", _("could not be decoded")
    EXPIRED = "expired", _("not begun in time")
    DISCARDED = "discarded", _("discarded by the task")
    UNSTORABLE = "unstorable", _("the result could not be stored")
    REQUESTED = "requested", _("cancelled on request")
    JOB_DELETED = "job_deleted", _("the job was deleted")
    REPLACED = "replaced", _("replaced by a newer run")
    PREREQUISITE = "prerequisite", _("a prerequisite ended otherwise")
    OVERLAP = "overlap", _("an earlier run was still open")
    MISFIRE = "misfire", _("missed while nothing could fire it")


REASONS = {
    Status.FAILED: (
        Reason.ERROR,
        Reason.TIMEOUT,
        Reason.LOST,
        Reason.QUARANTINED,
        Reason.EXPIRED,
        Reason.DISCARDED,
        Reason.UNSTORABLE,
    ),
    Status.CANCELLED: (Reason.REQUESTED, Reason.JOB_DELETED, Reason.REPLACED),
    Status.SKIPPED: (Reason.PREREQUISITE, Reason.OVERLAP, Reason.MISFIRE),
}


class Outcome(TextChoices):
    """How an attempt ended."""

    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    TIMED_OUT = "timed_out", _("timed out")
    LOST = "lost", _("worker lost")
    RELEASED = "released", _("given back")
    SNOOZED = "snoozed", _("snoozed")
    CANCELLED = "cancelled", _("cancelled")


class Condition(TextChoices):
    """How a prerequisite must end for its dependant to start."""

    SUCCESS = "success", _("succeeded")
    FAILURE = "failure", _("did not succeed")
    ANY = "any", _("ended")


class WorkerStatus(TextChoices):
    """What a worker is doing."""

    ONLINE = "online", _("online")
    DRAINING = "draining", _("draining")
    STOPPED = "stopped", _("stopped")
    LOST = "lost", _("lost")


class CoordinatorStatus(TextChoices):
    """What a leader-command process is doing."""

    LEADING = "leading", _("leading")
    STANDBY = "standby", _("standby")
    TICKING = "ticking", _("ticking")
    STOPPED = "stopped", _("stopped")
    LOST = "lost", _("lost")
