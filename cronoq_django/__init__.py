"""cronoq_django: scheduled jobs and background tasks for Django, on PostgreSQL alone.

The public names live here and are imported when first used, so that `from cronoq_django import task` works in a
module that Django loads before its models are ready.
"""

from typing import TYPE_CHECKING

from cronoq_django.lazy import lazily

if TYPE_CHECKING:
    from cronoq_django.errors import Discard as Discard
    from cronoq_django.errors import Duplicate as Duplicate
    from cronoq_django.errors import Retry as Retry
    from cronoq_django.errors import Snooze as Snooze
    from cronoq_django.schedules import Backoff as Backoff
    from cronoq_django.schedules import at as at
    from cronoq_django.schedules import cron as cron
    from cronoq_django.schedules import every as every
    from cronoq_django.schedules import manual as manual
    from cronoq_django.schedules import preview as preview
    from cronoq_django.store.controls import cancel as cancel
    from cronoq_django.store.controls import retry as retry
    from cronoq_django.store.records import get_run as get_run
    from cronoq_django.tasks.context import current_run as current_run
    from cronoq_django.tasks.decorators import job as job
    from cronoq_django.tasks.decorators import task as task
    from cronoq_django.tasks.enqueue import enqueue_many as enqueue_many

__version__ = "0.1.0"

_HOMES = {
    "Backoff": "schedules",
    "Discard": "errors",
    "Retry": "errors",
    "Snooze": "errors",
    "Duplicate": "errors",
    "at": "schedules",
    "cancel": "store.controls",
    "cron": "schedules",
    "current_run": "tasks.context",
    "enqueue_many": "tasks.enqueue",
    "every": "schedules",
    "get_run": "store.records",
    "job": "tasks.decorators",
    "manual": "schedules",
    "preview": "schedules",
    "retry": "store.controls",
    "task": "tasks.decorators",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  (a computed list: one table of names, not two)

__getattr__ = lazily(__name__, _HOMES)
