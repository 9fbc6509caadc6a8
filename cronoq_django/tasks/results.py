"""Results: a run's row as the TaskResult of Django's tasks framework."""

from typing import Any
from uuid import UUID

from cronoq_django import registry
from cronoq_django.compat import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from cronoq_django.errors import Quarantined
from cronoq_django.models import Run
from cronoq_django.models.choices import OPEN, Status
from cronoq_django.store.session import alias_of
from cronoq_django.tasks.task import Task


def unknown_script(*args: Any, **kwargs: Any) -> None:
    """Stands in for the function of a run whose script is not known here, so that its result can still be read."""
    raise Quarantined("this run's script is not known here")


def result_status(status: str) -> TaskResultStatus:
    """Our states in Django's words."""
    if status == Status.SUCCEEDED:
        return TaskResultStatus.SUCCESSFUL
    if status == Status.RUNNING:
        return TaskResultStatus.RUNNING
    return TaskResultStatus.READY if status in OPEN else TaskResultStatus.FAILED


def get_result(result_id: str, backend: str) -> TaskResult:
    """The result of a run. Raises TaskResultDoesNotExist for an unknown or malformed id."""
    try:
        run = Run.objects.using(alias_of(None)).get(pk=UUID(str(result_id)))
    except (ValueError, Run.DoesNotExist):
        raise TaskResultDoesNotExist(str(result_id)) from None
    return as_result(run, backend)


def as_result(run: Run, backend: str) -> TaskResult:
    """A run's row, with its attempts, as a TaskResult. Errors come oldest first."""
    try:
        task = registry.find(run.script).task
    except Quarantined:
        task = Task(
            func=unknown_script,
            script=run.script,
            backend=backend,
            queue_name=run.pool,
            priority=run.priority,
            run_after=None,
        )
    attempts = list(run.attempt_set.using(run._state.db).order_by("id"))
    workers = [str(attempt.worker_id) for attempt in attempts]
    last_claimed = run.started_at
    if (
        run.worker_id
        and run.status in (Status.RUNNING, Status.SUCCEEDED)
        and (not attempts or attempts[-1].outcome != Status.SUCCEEDED)
    ):
        workers.append(str(run.worker_id))
    errors = [
        TaskError(
            exception_class_path=attempt.exception_class or "cronoq_django.errors.CronoqError",
            traceback=attempt.traceback or attempt.error,
        )
        for attempt in attempts
        if attempt.error
    ]
    if run.status not in (*OPEN, Status.SUCCEEDED) and not errors:
        errors.append(
            TaskError(exception_class_path="cronoq_django.errors.CronoqError", traceback=run.error or run.reason)
        )
    result: TaskResult = TaskResult(
        task=task,
        id=str(run.id),
        status=result_status(run.status),
        enqueued_at=run.created_at,
        started_at=attempts[0].started_at if attempts else run.started_at,
        finished_at=run.finished_at,
        last_attempted_at=last_claimed or (attempts[-1].started_at if attempts else None),
        args=run.args if isinstance(run.args, list) else [],
        kwargs=run.kwargs if isinstance(run.kwargs, dict) else {},
        backend=backend,
        errors=errors,
        worker_ids=workers,
    )
    object.__setattr__(result, "_return_value", run.result)
    return result
