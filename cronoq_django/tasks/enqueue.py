"""Enqueue: from a task call to a row, in the caller's transaction, with one statement."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections

from cronoq_django import registry
from cronoq_django.compat import TaskResult, TaskResultStatus
from cronoq_django.conf import conf
from cronoq_django.errors import Quarantined
from cronoq_django.models.fields import dump_json
from cronoq_django.store.runs import NewRun, insert_runs
from cronoq_django.store.session import alias_of
from cronoq_django.tasks.context import current_run
from cronoq_django.tasks.task import MAX_ATTEMPTS


def enqueue(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
    """Insert a run of `task`; the result to follow it by.

    It becomes visible, and executable, when the caller's transaction commits; in autocommit that is at once.
    Raises TypeError or ValueError, naming the argument, for arguments that the function does not take or JSON does not
    hold; nothing is written then, and the transaction stays usable.
    """
    run = new_run(task, args, kwargs)
    with connections[alias_of(None)].cursor() as cursor:
        inserted = insert_runs(cursor, [run])[0]
    return TaskResult(
        task=task,
        id=str(run.id),
        status=TaskResultStatus.READY,
        enqueued_at=inserted.created_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )


def new_run(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewRun:
    """The row for a call of `task`, checked. Raises TypeError or ValueError."""
    script = registry.describe(task)
    try:
        script.bind(list(args), dict(kwargs))
    except Quarantined as error:
        raise TypeError(str(error)) from None
    args_text, kwargs_text = dump_json(list(args), "args"), dump_json(dict(kwargs), "kwargs")
    if (size := len(args_text) + len(kwargs_text)) > conf().max_payload:
        raise ValueError(
            f"The arguments of {script.name} take {size:,} bytes of JSON, over CRONOQ['MAX_PAYLOAD'] = "
            f"{conf().max_payload:,}: store them elsewhere and pass a reference."
        )
    parent = current_run()
    backoff = getattr(task, "backoff", None)
    return NewRun(
        script=script.name,
        args=args_text,
        kwargs=kwargs_text,
        pool=task.queue_name,
        priority=task.priority,
        due_at=task.run_after,
        timeout=getattr(task, "timeout", None),
        max_attempts=getattr(task, "max_attempts", MAX_ATTEMPTS),
        backoff=backoff.dump() if backoff is not None and backoff != type(backoff)() else None,
        parent_id=parent.id if parent else None,
        root_id=(parent.root or parent.id) if parent else None,
    )
