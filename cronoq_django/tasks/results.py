"""Results: a run's row as the TaskResult of Django's tasks framework."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from cronoq_django import registry
from cronoq_django.compat import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus, task_backends
from cronoq_django.errors import Quarantined
from cronoq_django.models import Run
from cronoq_django.models.choices import OPEN, Status
from cronoq_django.store.session import alias_of
from cronoq_django.tasks.bound import Bound
from cronoq_django.tasks.task import Task


def result_status(status: str) -> TaskResultStatus:
    """Our states in Django's words."""
    if status == Status.SUCCEEDED:
        return TaskResultStatus.SUCCESSFUL
    if status == Status.RUNNING:
        return TaskResultStatus.RUNNING
    return TaskResultStatus.READY if status in OPEN else TaskResultStatus.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(TaskResult):  # type: ignore[misc]  # a stub lacks "frozen"
    """A TaskResult that also says whether this enqueue created its run, or found one with its key there already."""

    created: bool = True


def new_result(member: Bound, enqueued_at: datetime) -> RunResult:
    """The result of a run that was just made."""
    return RunResult(
        task=member.task,
        id=str(member.id),
        status=TaskResultStatus.READY,
        enqueued_at=enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(member.args),
        kwargs=dict(member.kwargs),
        backend=member.task.backend,
        errors=[],
        worker_ids=[],
    )


def get_result(result_id: str, backend: str) -> RunResult:
    """The result of a run. Raises TaskResultDoesNotExist for an unknown or malformed id."""
    try:
        run = Run.objects.using(alias_of(None)).get(pk=UUID(str(result_id)))
    except (ValueError, Run.DoesNotExist):
        raise TaskResultDoesNotExist(str(result_id)) from None
    return as_result(run, backend)


def as_result(run: Run, backend: str, *, created: bool = True) -> RunResult:
    """A run's row, with its attempts, as a TaskResult. Errors come oldest first."""
    try:
        task = registry.find(run.script).task
    except Quarantined:
        task = _unknown(run, backend)
    attempts = list(run.attempt_set.all())
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
    result = RunResult(
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
        created=created,
    )
    object.__setattr__(result, "_return_value", run.result)
    return result


def _unknown(run: Run, backend: str) -> Task:
    """Stands in for a task that is not known here; its queue may have left the settings with it."""
    queue = next(iter(task_backends[backend].queues), run.pool)
    task = Task(
        func=registry.unknown_script, script=run.script, backend=backend, queue_name=queue, priority=0, run_after=None
    )
    object.__setattr__(task, "queue_name", run.pool)
    object.__setattr__(task, "priority", run.priority)
    return task
