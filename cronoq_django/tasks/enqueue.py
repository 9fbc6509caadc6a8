"""Enqueue: from task calls to rows, in the caller's transaction.

One call is one statement; a key that somebody has, or prerequisites, take more. Many go in with a statement for every
few thousand, all or none.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connections, transaction

from cronoq_django import registry
from cronoq_django.compat import task_backends
from cronoq_django.conf import conf
from cronoq_django.errors import Duplicate, Quarantined, Unavailable, translated
from cronoq_django.models import Run
from cronoq_django.models.fields import dump_json
from cronoq_django.schedules import Backoff
from cronoq_django.store import clock
from cronoq_django.store.runs import NewRun
from cronoq_django.store.session import alias_of
from cronoq_django.store.submit import Submitted, in_order, key_hash, refuse_circle, submit_runs
from cronoq_django.tasks.bound import Bound
from cronoq_django.tasks.context import current_run
from cronoq_django.tasks.results import RunResult, as_result, new_result
from cronoq_django.tasks.task import MAX_ATTEMPTS

logger = logging.getLogger("cronoq")

LOOKED_UP = 1000  # rows in a query: PostgreSQL takes 65,535 parameters at most

_warned: set[str] = set()


def enqueue_many(bound: Iterable[Bound]) -> list[RunResult]:
    """Enqueue tasks that were bound to their arguments, all or none; the results in their order.

    >>> enqueue_many([remind.bind(order.pk) for order in late])
    >>> a, b = load.bind(), check.bind()
    >>> enqueue_many([a, b, report.using(after=[a, b]).bind()])

    Raises what `enqueue` raises, and ValueError, naming it, for a cycle; nothing is written then.
    """
    members = list(bound)
    aliases = {getattr(member.task, "backend", "default") for member in members}
    if len(aliases) > 1:
        raise ValueError(f"enqueue_many takes tasks of one backend at a time, not of {', '.join(sorted(aliases))}")
    backend: Any = task_backends[aliases.pop()] if aliases else None
    results: list[RunResult] = backend.enqueue_many(members) if members else []
    return results


def submit(members: Sequence[Bound]) -> list[RunResult]:
    """Insert the runs of bound tasks of our backend; their results.

    They become visible, and executable, when the caller's transaction commits; in autocommit that is at once.
    Raises TypeError or ValueError, naming the argument, for arguments that the function does not take or JSON does not
    hold; NotFound for an unknown prerequisite; Duplicate if that was asked for; Unavailable. Nothing is written then,
    and but for Unavailable the transaction stays usable.
    """
    refuse_cycle(members)
    prerequisites = {member.id: member.prerequisites for member in members if member.prerequisites}
    runs: Iterable[NewRun] = new_runs(members)
    if alone := len(members) == 1 and not prerequisites:
        runs = list(runs)  # checked before the only statement; many are checked while they go in, and rolled back
    elif any(getattr(member.task, "key", None) for member in members):
        runs = in_order(runs)
    alias = alias_of(None)
    _warn_of_another_transaction(alias)
    with translated(), nullcontext() if alone else transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            submitted = submit_runs(cursor, runs, prerequisites)
        for member in members:
            run = submitted[member.id]
            if not run.created and getattr(member.task, "on_duplicate", "return") == "raise":
                raise Duplicate(member.task.key, run.id)
        return _results(members, submitted, alias)


def _results(members: Sequence[Bound], submitted: Mapping[UUID, Submitted], alias: str) -> list[RunResult]:
    there = [run.id for run in submitted.values() if not run.created]
    rows: dict[UUID, Run] = {}
    for start in range(0, len(there), LOOKED_UP):
        some = Run.objects.using(alias).filter(pk__in=there[start : start + LOOKED_UP])
        rows |= {row.pk: row for row in some.prefetch_related("attempt_set")}
    if gone := set(there) - rows.keys():
        raise Unavailable(f"the run {gone.pop()} was deleted while it was found to have the key")
    return [
        new_result(member, run.created_at)
        if run.created
        else as_result(rows[run.id], member.task.backend, created=False)
        for member in members
        for run in (submitted[member.id],)
    ]


def new_runs(members: Iterable[Bound]) -> Iterator[NewRun]:
    """The rows for bound tasks, each checked. Raises TypeError or ValueError."""
    known: dict[int, tuple[registry.RegisteredScript, dict[str, Any]]] = {}  # by task
    most = conf().max_payload
    for member in members:
        task, args, kwargs = member.task, list(member.args), dict(member.kwargs)
        if id(task) not in known:
            known[id(task)] = registry.describe(task), _columns(task)
        script, columns = known[id(task)]
        try:
            script.bind(args, kwargs)
        except Quarantined as error:
            raise TypeError(str(error)) from None
        args_text, kwargs_text = dump_json(args, "args"), dump_json(kwargs, "kwargs")
        if (size := len(args_text) + len(kwargs_text)) > most:
            raise ValueError(
                f"The arguments of {script.name} take {size:,} bytes of JSON, over CRONOQ['MAX_PAYLOAD'] = "
                f"{most:,}: store them elsewhere and pass a reference."
            )
        waits = True if member.prerequisites else None
        yield NewRun(id=member.id, args=args_text, kwargs=kwargs_text, waits=waits, **columns)


def _columns(task: Any) -> dict[str, Any]:
    """What the rows of a task have in common. The task may be one of Django's own, without our options."""
    parent = current_run()
    backoff, key, tags = getattr(task, "backoff", None), getattr(task, "key", None), getattr(task, "tags", ())
    expires = getattr(task, "expires", None)
    return {
        "script": registry.script_name(task),
        "pool": task.queue_name,
        "priority": int(task.priority),
        "due_at": task.run_after,
        "expires_at": clock.now() + expires if isinstance(expires, timedelta) else expires,
        "timeout": getattr(task, "timeout", None),
        "max_attempts": getattr(task, "max_attempts", MAX_ATTEMPTS),
        "backoff": backoff.dump() if backoff is not None and backoff != Backoff() else None,
        "parent_id": parent.id if parent else None,
        "root_id": (parent.root or parent.id) if parent else None,
        "actor": getattr(task, "actor", "") or None,
        "tags": dump_json(list(tags)) if tags else None,
        "key": key,
        "key_hash": None if key is None else key_hash(key),
        "key_for": getattr(task, "key_for", None) or None,
    }


def refuse_cycle(members: Sequence[Bound]) -> None:
    """Raise ValueError if the bound tasks wait for each other in a circle, and name it."""
    pairs = [(member.id, waited) for member in members for waited in member.prerequisites]
    if pairs:
        refuse_circle(pairs, {member.id: f"{registry.script_name(member.task)} ({member.id})" for member in members})


def _warn_of_another_transaction(alias: str) -> None:
    """Whoever enqueues within a transaction of another database may believe that both commit together."""
    if connections[alias].in_atomic_block or alias in _warned:
        return
    open_ones = [other.alias for other in connections.all(initialized_only=True) if other.in_atomic_block]
    if open_ones:
        _warned.add(alias)
        logger.warning(
            "A task was enqueued within a transaction of the database %r, but runs are in %r: they are committed at "
            "once, whatever becomes of that transaction. Said once a process.",
            open_ones[0],
            alias,
        )
