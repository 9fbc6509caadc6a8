"""Status: one look at a cluster. Cheap: open rows and small tables only, never the history."""

from typing import Any

from django.db.models import Count, Min
from django.db.models.functions import Now

from cronoq_django.models import Coordinator, JobState, Leader, Run, Stage, Worker
from cronoq_django.models.choices import OPEN
from cronoq_django.store.session import alias_of


def status(*, using: str | None = None) -> dict[str, Any]:
    """Leader, standbys, stages, workers, queues and jobs with errors, as plain values; times are aware, in UTC."""
    alias = alias_of(using)
    leader = Leader.objects.using(alias).annotate(now=Now()).values().first()
    queues = Run.objects.using(alias).filter(status__in=OPEN).values("pool", "status")
    return {
        "leader": leader and {**leader, "is_alive": leader["now"] - leader["renewed_at"] < leader["ttl"]},
        "standbys": list(
            _live(Coordinator, alias).filter(status="standby").values("host", "process_id", "last_heartbeat_at")
        ),
        "stages": list(Stage.objects.using(alias).values("name", "last_run_at", "duration", "rows", "error")),
        "workers": list(
            _live(Worker, alias)
            .filter(status__in=["online", "draining"])
            .values("name", "status", "pools", "running", "last_heartbeat_at")
        ),
        "runs": list(queues.annotate(count=Count("pk"), oldest_due_at=Min("due_at")).order_by("pool", "status")),
        "jobs_with_errors": list(
            JobState.objects.using(alias).exclude(error="").values("job__name", "error").order_by("job__name")
        ),
    }


def _live(model: Any, alias: str) -> Any:
    return model.objects.using(alias).order_by("started_at")
