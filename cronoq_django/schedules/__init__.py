"""Schedules: pure time arithmetic, without Django and without a database.

A schedule is a plain value that knows its slots, the UTC instants at which a job is due:

    nightly = cron("30 2 * * *", timezone="America/New_York")
    nightly.next(datetime(2025, 3, 8, 12, tzinfo=UTC))  # 2025-03-09 07:00 UTC: half past two is skipped that night

`decide` says what becomes of due slots under a job's policies, `first_slot` plans the first one.
"""

from .backoff import Backoff
from .cron import Cron, cron
from .decide import Decision, Skipped, Terms, decide, first_slot
from .errors import ScheduleError
from .every import Every, every
from .jitter import jittered
from .misfire import MOST_FIRED, PUNCTUAL, Misfire
from .once import At, Manual, at, manual
from .overlap import Overlap
from .preview import Preview, preview
from .schedule import Schedule
from .zones import zone

__all__ = [
    "MOST_FIRED",
    "PUNCTUAL",
    "At",
    "Backoff",
    "Cron",
    "Decision",
    "Every",
    "Manual",
    "Misfire",
    "Overlap",
    "Preview",
    "Schedule",
    "ScheduleError",
    "Skipped",
    "Terms",
    "at",
    "cron",
    "decide",
    "every",
    "first_slot",
    "jittered",
    "manual",
    "preview",
    "zone",
]
