"""Run what is due, in this thread and in the transaction of the test: a leader and a worker at once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Timer
from uuid import UUID, uuid4

from django.db import connections, transaction
from psycopg.pq import TransactionStatus

from cronoq_django.leader.stages.admit import Admit
from cronoq_django.leader.stages.expire import Expire
from cronoq_django.leader.stages.fire import Fire
from cronoq_django.leader.stages.pause import Pause
from cronoq_django.leader.stages.plan import Plan
from cronoq_django.leader.stages.quarantine import Quarantine
from cronoq_django.leader.stages.settle import Settle
from cronoq_django.leader.stages.stage import StageRuns
from cronoq_django.models import Run
from cronoq_django.models.choices import TERMINAL, Status
from cronoq_django.store import clock, runs
from cronoq_django.store.leadership import FencedTransaction, Term
from cronoq_django.store.records import TaskRecord, record
from cronoq_django.store.session import alias_of
from cronoq_django.tasks.context import RunLog
from cronoq_django.worker.completer import tell_finished
from cronoq_django.worker.executor import Execution, TimedOut

STAGES = (Pause, Plan, Fire, StageRuns, Admit, Settle, Expire, Quarantine)
PASSES = 1000  # a chain of runs that are skipped takes one each
LEASE = timedelta(days=1)


def run_pending(*, limit: int = 1000) -> list[TaskRecord]:
    """Fire the due slots of jobs, and execute all runs that are due, the most urgent first, and those that they make
    due; what became of each, in order.

    As with real workers a task runs outside of our transactions, gets its arguments as JSON gives them back, is tried
    again when it fails (at once if its delay has passed by `advance`), and has its result stored or refused. Nothing is
    committed or closed. Writes of a task that leaves the transaction broken are undone. Raises RuntimeError if there is
    still work after `limit` executions.
    """
    executed: list[TaskRecord] = []
    worker = uuid4()
    while (run := _next(worker)) is not None:
        if len(executed) == limit:
            raise RuntimeError(f"there is still work after {limit} executions: does a task enqueue itself?")
        executed += _execute(run, worker)
    return executed


def _next(worker: UUID) -> "runs.ClaimedRun | None":
    with _leading() as tx:
        for _ in range(PASSES):  # what one stage ends, another may have to settle
            if not sum(kind().step(tx) for kind in STAGES):
                break
        queued = Run.objects.using(alias_of(None)).filter(status=Status.QUEUED).order_by("-priority", "due_at", "id")
        for pool in dict.fromkeys(queued.values_list("pool", flat=True)):
            # None of a paused pool, and nothing past its deadline.
            for run in runs.claim_runs(tx, worker=worker, pool=pool, limit=1, lease=LEASE):
                return run
    return None


def _execute(run: "runs.ClaimedRun", worker: UUID) -> list[TaskRecord]:
    """Execute a run; its record, unless the task has deleted its row."""
    alias = alias_of(None)
    execution = Execution(run, str(worker))
    with _undone_if_broken(alias), _logged(), _timed(execution):
        completion = execution.execute()
    assert completion is not None  # noqa: S101  (nobody else can have given it back)
    with _leading() as tx:
        if (detail := execution.detail()) is not None:
            runs.write_details(tx, [detail])
        status = runs.complete_runs(tx, [completion]).accepted.get(execution.key)
    if status in TERMINAL:
        tell_finished(execution, status)
    return [record(row) for row in Run.objects.using(alias).filter(pk=run.id)]


@contextmanager
def _timed(execution: Execution) -> Iterator[None]:
    """End it when its time is over."""
    timeout = execution.run.timeout
    timer = Timer(0 if timeout is None else timeout.total_seconds(), execution.interrupt, [TimedOut])
    if timeout is not None:
        timer.start()
    yield
    timer.cancel()


@contextmanager
def _logged() -> Iterator[None]:
    handler = RunLog()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextmanager
def _leading() -> Iterator[FencedTransaction]:
    """A transaction that stages take for a leader's: a test has its rows for itself."""
    alias = alias_of(None)
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
        yield FencedTransaction(cursor, Term(0, uuid4()), clock.frozen or now)


@contextmanager
def _undone_if_broken(alias: str) -> Iterator[None]:
    """A statement that failed leaves the transaction of the test unusable, as it would leave none of a worker's."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        yield
        return
    depth = len(connection.savepoint_ids)
    savepoint = str(connection.savepoint())
    connection.savepoint_ids.append(savepoint)  # so that what waits for the commit goes with it
    yield
    del connection.savepoint_ids[depth:]  # of blocks that the task did not leave
    if connection.needs_rollback or connection.connection.info.transaction_status == TransactionStatus.INERROR:
        connection.needs_rollback = False
        connection.savepoint_rollback(savepoint)
    connection.savepoint_commit(savepoint)
