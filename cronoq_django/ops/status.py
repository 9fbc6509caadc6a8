"""Status: one look at a cluster. Cheap: open rows and small tables only, never the history."""

from typing import Any

from django.db.models import Count, DurationField, ExpressionWrapper, F, Min
from django.db.models.functions import Now

from cronoq_django.models import Coordinator, JobState, Leader, LeaderTerm, Run, Stage, Worker
from cronoq_django.models.choices import OPEN
from cronoq_django.schedules.zones import tz_release
from cronoq_django.store.session import alias_of


def status(*, using: str | None = None) -> dict[str, Any]:
    """Leader, standbys, stages, workers, runs, those that are ready, jobs with errors, this host's tz data.

    Times are aware, in UTC.
    """
    alias = alias_of(using)
    queues = Run.objects.using(alias).filter(status__in=OPEN).values("pool", "status")
    return {
        "leader": _leader(alias),
        "standbys": list(
            _live(Coordinator, alias)
            .filter(status="standby")
            .values("host", "process_id", "last_heartbeat_at", heartbeat_age=_since("last_heartbeat_at"))
        ),
        "stages": list(
            Stage.objects.using(alias).values("name", "last_run_at", "duration", "rows", "error", "error_at")
        ),
        "workers": list(
            _live(Worker, alias)
            .filter(status__in=["online", "draining"])
            .values("name", "status", "pools", "running", "last_heartbeat_at")
        ),
        "runs": list(queues.annotate(count=Count("pk"), oldest_due_at=Min("due_at")).order_by("pool", "status")),
        "ready": list(
            Run.objects.using(alias)
            .filter(status="queued")
            .values("pool", "priority")
            .annotate(count=Count("pk"), oldest_due_at=Min("due_at"))
            .annotate(oldest_age=_since("oldest_due_at"))
            .order_by("pool", "-priority")
        ),  # priority is strict: what waits behind more urgent work shows here, and nowhere else
        "jobs_with_errors": list(
            JobState.objects.using(alias).exclude(error="").values("job__name", "error").order_by("job__name")
        ),
        "tz_data": tz_release(),
    }


def _leader(alias: str) -> dict[str, Any] | None:
    """Who leads, or led last; with the age of the term and of its last heartbeat, and what it recovered."""
    rows = Leader.objects.using(alias)
    leader = rows.values(
        "epoch", "term", "coordinator", "host", "acquired_at", "renewed_at", "ttl",
        term_age=_since("acquired_at"), heartbeat_age=_since("renewed_at"),
    ).first()  # fmt: skip
    if leader is None:
        return None
    term = LeaderTerm.objects.using(alias).filter(term=leader["term"]).first()
    process = Coordinator.objects.using(alias).filter(pk=leader["coordinator"]).values_list("process_id", flat=True)
    return {
        **leader,
        "process_id": process.first(),
        "is_alive": leader["heartbeat_age"] < leader["ttl"] and not (term and term.until_at),
        "recovered": term.recovered if term else {},
        "ended": term.ended if term else "",
    }


def _since(field: str) -> ExpressionWrapper:
    return ExpressionWrapper(Now() - F(field), output_field=DurationField())


def _live(model: Any, alias: str) -> Any:
    return model.objects.using(alias).order_by("started_at")
