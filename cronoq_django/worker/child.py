"""A child: one loop on one session, and threads that execute.

    claim ──► hand to a thread ──► outcome ──► written in the next transaction, together with the next claim

One transaction a round writes the outcomes that have come in, notes which runs have begun, and claims for the free
slots. Outcomes wait in the completer until that has committed; when the database is away, tasks go on, outcomes wait.
After a lost session the child reads back what it owns: a claim whose commit was not heard of is given back.

Drain (the supervisor says so): nothing is claimed any more, what has not begun goes back at once, what executes may end
within the grace; then it goes back too, uncharged. Signals are the supervisor's: several would reach a child, its own
and those that go to the whole group, and each could end the grace.
"""

import logging
import os
import random
import signal
import socket
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from uuid import UUID

import psycopg

import cronoq_django
from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import Quarantined, Unavailable
from cronoq_django.models.choices import Outcome, Status, WorkerStatus
from cronoq_django.store.runs import (
    ClaimedRun,
    Completed,
    Completion,
    Detail,
    complete_runs,
    mark_started,
    owned_runs,
    write_details,
)
from cronoq_django.store.session import Session, connect, listen, transaction
from cronoq_django.store.workers import heartbeat_worker, register_worker, someone_knows
from cronoq_django.tasks.context import RunLog
from cronoq_django.worker.claimer import Claimer
from cronoq_django.worker.completer import Completer, Finished
from cronoq_django.worker.executor import CancelledByRequest, Execution, Executor, TimedOut
from cronoq_django.worker.orphan import exit_with_parent
from cronoq_django.worker.sessions import ANSWER, session_settings
from cronoq_django.worker.wakeup import Wakeup

logger = logging.getLogger("cronoq.worker")

MARK_AFTER = 0.1  # seconds: a quicker run is never marked as begun, which spares a write
LONGEST_SLEEP = 1.0
TELL_EVERY = 1.0  # seconds: how old a progress may be that people see
STEADY = 10.0  # seconds: who fails sooner waits longer before trying again


class Child:
    """One worker: an identity, its pools, its session."""

    def __init__(self, control: Connection, *, alias: str, worker: UUID, name: str, pools: Mapping[str, int]) -> None:
        self._control = control
        self._alias = alias
        self._worker = worker
        self._name = name
        self._pools = dict(pools)
        self._wakeup = Wakeup(control)
        self._completer = Completer()
        self._claimer = Claimer(worker, pools)
        self._executors = {pool: Executor(pool, size, self._done) for pool, size in pools.items()}
        self._running: dict[tuple[UUID, int], Execution] = {}
        self._tell_at = 0.0  # monotonic
        self._draining = False
        self._deadline = float("inf")  # monotonic: the end of the grace

    def run(self) -> None:
        """Work until drained."""
        exit_with_parent()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        logging.getLogger().addHandler(RunLog())
        registry.autodiscover()
        failures = 0
        while True:
            begun = time.monotonic()
            try:
                with self._connect() as session:
                    self._work(session)
                break
            except Unavailable as error:
                logger.warning("The database is unavailable: %s", error)
            except Exception:  # a bug, or tables that a deploy is changing: what executes must not be lost by it
                logger.exception("Beginning anew.")
            if time.monotonic() > self._deadline:
                logger.error("Stopping without the database: runs come back when their leases run out.")
                break
            failures = failures + 1 if time.monotonic() < begun + STEADY else 0
            self._wakeup.wait(None, min(5.0, 0.25 * 2 ** min(failures, 5)) * random.uniform(0.5, 1.0))  # noqa: S311
            self._read_control()  # also when the database never comes back
        for executor in self._executors.values():
            executor.shutdown()
        self._completer.close()
        logger.info("Worker %s has drained.", self._name)
        if time.monotonic() > self._deadline:
            os._exit(0)  # tasks that outlive the grace must not hold the process

    def _connect(self) -> Session:
        session = connect(self._alias, name="cronoq worker", settings=session_settings(), patience=lambda: ANSWER)
        try:
            listen(session, *(f"pool:{pool}" for pool in self._pools))
            self._introduce(session)
        except BaseException:
            session.close()
            raise
        self._claimer.wake()
        return session

    def _introduce(self, session: Session) -> None:
        """Register, and give back what this worker owns without knowing of it."""
        with transaction(session) as cursor:
            heartbeat_worker(cursor, worker=self._worker, status=WorkerStatus.ONLINE)
            register_worker(
                cursor,
                worker=self._worker,
                name=self._name,
                host=socket.gethostname(),
                process_id=os.getpid(),
                version=cronoq_django.__version__,
                pools=self._pools,
                scripts=registry.names(),
            )
            # A claim whose commit was not heard of: nobody here executes it, and its lease is renewed with the others.
            strangers = [owned for owned in owned_runs(cursor, self._worker) if owned not in self._running]
            if complete_runs(cursor, [_given_back(run, claim) for run, claim in strangers]).busy:
                raise Unavailable("a run that is to be given back is locked")

    def _work(self, session: Session) -> None:
        """Rounds until drained. Raises Unavailable when the session is lost."""
        while True:
            self._read_control()
            if self._draining and self._drained():
                return
            free = self._free()
            claimed = self._write_and_claim(session, free)
            for run in claimed:
                self._begin(session, run)
            self._watch_time()
            if self._wakeup.wait(session, 0.0 if claimed else self._sleep(free)):
                self._claimer.wake()

    def _write_and_claim(self, session: Session, free: Mapping[str, int]) -> list[ClaimedRun]:
        """One round's transaction, if there is anything to write or to ask."""
        batch = self._completer.batch()
        begun = self._unmarked()
        wanted = {} if self._draining else self._claimer.wanted({**free, **self._freed(batch, free)})
        details = self._news(batch)
        if not (batch or begun or wanted or details):
            return []
        try:
            with transaction(session) as cursor:
                write_details(cursor, [detail for _, detail in details])
                completed = complete_runs(cursor, [completion for _, completion in batch])
                marked = mark_started(cursor, [(*one.key, one.took) for one in begun if one.took is not None])
                claimed = self._claimer.claim(cursor, wanted)
        except (psycopg.Error, Unavailable) as error:
            for execution, _ in details:
                execution.report.keep()
            if not batch or isinstance(error, Unavailable):
                raise
            logger.exception("Outcomes could not be written together: writing them one by one.")
            self._write_singly(session, batch)
            return []
        self._written(batch, completed)
        for execution in begun:
            execution.marked = execution.key in marked
        return claimed

    def _news(self, batch: list[Finished]) -> list[tuple[Execution, Detail]]:
        """What runs say of themselves: those that end now, and once a second those that go on."""
        telling = [execution for execution, _ in batch]
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + TELL_EVERY
            telling = list({*telling, *self._running.values()})
        return [(execution, detail) for execution in telling if (detail := execution.detail()) is not None]

    def _write_singly(self, session: Session, batch: list[Finished]) -> None:
        """Something in the batch can't be stored. Its run ends and says so; the others' outcomes are written."""
        for execution, completion in batch:
            try:
                with transaction(session) as cursor:
                    if (detail := execution.detail()) is not None:
                        write_details(cursor, [detail])
                    completed = complete_runs(cursor, [completion])
            except psycopg.Error as error:
                with transaction(session) as cursor:
                    completed = complete_runs(cursor, [execution.unstorable(error)])
            self._written([(execution, completion)], completed)

    def _written(self, batch: list[Finished], completed: Completed) -> None:
        """The transaction has committed."""
        self._completer.written(batch, completed)
        for execution, _ in batch:
            if execution.key not in completed.busy:
                self._running.pop(execution.key, None)

    def _begin(self, session: Session, run: ClaimedRun) -> None:
        execution = Execution(run, str(self._worker))
        try:
            registry.find(run.script)
        except Quarantined as error:
            aside = self._set_aside(session, execution, error)  # if this fails, the run is a stranger: given back
            self._running[execution.key] = execution
            self._done(execution, aside)
            return
        self._running[execution.key] = execution
        self._executors[run.pool].submit(execution)

    def _set_aside(self, session: Session, execution: Execution, error: Quarantined) -> Completion:
        """A script not known here: in a mixed fleet another worker knows it, else the run is quarantined."""
        with transaction(session) as cursor:
            known = someone_knows(cursor, execution.run.script, silence=2 * conf().lease)
        if not known:
            return execution.quarantined(error)
        self._claimer.exclude(execution.run.script)
        return execution.released(str(error))

    def _done(self, execution: Execution, completion: Completion) -> None:
        """From the threads: an outcome is ready to be written."""
        self._completer.add(execution, completion)
        self._wakeup.set()

    def _free(self) -> dict[str, int]:
        used = dict.fromkeys(self._pools, 0)
        for execution in self._running.values():
            used[execution.run.pool] += 1
        return {pool: size - used[pool] for pool, size in self._pools.items()}

    def _freed(self, batch: list[Finished], free: Mapping[str, int]) -> dict[str, int]:
        """Free slots as they will be once this batch is written: its transaction claims for them already."""
        freed = dict(free)
        for execution, _ in batch:
            freed[execution.run.pool] += 1
        return freed

    def _unmarked(self) -> list[Execution]:
        now = time.monotonic()
        return [
            one
            for one in self._running.values()
            if not one.marked and one.begun_at is not None and now - one.begun_at > MARK_AFTER
        ]

    def _watch_time(self) -> None:
        for execution in self._running.values():
            if execution.is_out_of_time:
                execution.interrupt(TimedOut)

    def _sleep(self, free: Mapping[str, int]) -> float:
        if any(not execution.marked for execution in self._running.values()):
            return MARK_AFTER
        soonest = LONGEST_SLEEP if self._draining else min(LONGEST_SLEEP, self._claimer.seconds_until_poll(free))
        deadlines = [
            execution.begun_at + execution.run.timeout.total_seconds() - time.monotonic()
            for execution in self._running.values()
            if execution.run.timeout is not None and execution.begun_at is not None
        ]
        return max(0.01, min([soonest, *deadlines]))

    def _drained(self) -> bool:
        """Whether nothing is left to do; gives back what is not to be waited for."""
        late = time.monotonic() > self._deadline
        for execution in list(self._running.values()):
            if execution.give_back(begun=late):
                self._completer.add(execution, execution.released("The worker was shut down."))
        return not self._running

    def _read_control(self) -> None:
        """Messages of the supervisor: to drain within some seconds, or runs that somebody cancelled."""
        while self._control.poll():
            match self._control.recv():
                case "drain", grace:
                    self._draining = True
                    self._deadline = min(self._deadline, time.monotonic() + grace)
                case "cancel", keys:
                    for key in keys:
                        if (execution := self._running.get(key)) is not None:
                            execution.interrupt(CancelledByRequest)


def _given_back(run: UUID, claim: int) -> Completion:
    return Completion(id=run, claim=claim, outcome=Outcome.RELEASED, status=Status.QUEUED, counts=False)
