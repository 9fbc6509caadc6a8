"""A child: one loop on one session, and threads that execute.

    claim ──► hand to a thread ──► outcome ──► written in the next transaction, together with the next claim

One transaction a round writes the outcomes that have come in, notes which runs have begun, and claims for the free
slots. Outcomes wait in the completer until that has committed; when the database is away, tasks go on, outcomes wait.
After a lost session the child reads back what it owns: a claim whose commit was not heard of is given back.

Drain (SIGTERM): nothing is claimed any more, what has not begun goes back at once, what executes may end within the
grace; then it goes back too, uncharged. A second signal ends the grace.
"""

import logging
import os
import random
import signal
import socket
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any
from uuid import UUID

import psycopg

import cronoq_django
from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import Quarantined, Unavailable
from cronoq_django.models.choices import Outcome, Status
from cronoq_django.store.runs import ClaimedRun, Completion, complete_runs, mark_started, owned_runs
from cronoq_django.store.session import Session, connect, listen, transaction
from cronoq_django.store.workers import register_worker, someone_knows
from cronoq_django.worker.claimer import Claimer
from cronoq_django.worker.completer import Completer, Finished
from cronoq_django.worker.executor import CancelledByRequest, Execution, Executor, TimedOut
from cronoq_django.worker.orphan import exit_with_parent
from cronoq_django.worker.wakeup import Wakeup

logger = logging.getLogger("cronoq.worker")

MARK_AFTER = 0.1  # seconds: a quicker run is never marked as begun, which spares a write
LONGEST_SLEEP = 1.0


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
        self._signals = 0
        self._deadline = float("inf")  # monotonic: the end of the grace

    def run(self) -> None:
        """Work until drained."""
        exit_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides
        signal.signal(signal.SIGTERM, self._on_signal)
        registry.autodiscover()
        failures = 0
        while True:
            try:
                with self._connect() as session:
                    failures = 0
                    self._work(session)
                break
            except Unavailable as error:
                failures += 1
                if self._signals and time.monotonic() > self._deadline:
                    logger.error(
                        "Stopping without the database: %d runs come back when their leases run out.",
                        len(self._running),
                    )
                    break
                pause = min(5.0, 0.25 * 2 ** min(failures, 5)) * random.uniform(0.5, 1.0)  # noqa: S311
                logger.warning("The database is unavailable, trying again in %.1f s: %s", pause, error)
                self._wakeup.wait(None, pause)
        for executor in self._executors.values():
            executor.shutdown()
        self._completer.close()
        logger.info("Worker %s has drained.", self._name)
        if time.monotonic() > self._deadline:
            os._exit(0)  # tasks that outlive the grace must not hold the process

    def _connect(self) -> Session:
        session = connect(
            self._alias, name="cronoq worker", settings={"statement_timeout": "30s", "lock_timeout": "10s"}
        )
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
            register_worker(
                cursor,
                worker=self._worker,
                name=self._name,
                host=socket.gethostname(),
                process_id=os.getpid(),
                version=cronoq_django.__version__,
                pools=self._pools,
                scripts=sorted(registry.scripts()),
            )
            # A claim whose commit was not heard of: nobody here executes it, and its lease is renewed with the others.
            strangers = [owned for owned in owned_runs(cursor, self._worker) if owned not in self._running]
            complete_runs(cursor, [_given_back(run, claim) for run, claim in strangers])

    def _work(self, session: Session) -> None:
        """Rounds until drained. Raises Unavailable when the session is lost."""
        while not (self._signals and self._drained()):
            free = self._free()
            claimed = self._write_and_claim(session, free)
            for run in claimed:
                self._begin(session, run)
            self._watch_time()
            if self._wakeup.wait(session, 0.0 if claimed else self._sleep(free)):
                self._claimer.wake()
            self._read_control()

    def _write_and_claim(self, session: Session, free: Mapping[str, int]) -> list[ClaimedRun]:
        """One round's transaction, if there is anything to write or to ask."""
        batch = self._completer.batch()
        begun = self._unmarked()
        wanted = {} if self._signals else self._claimer.wanted({**free, **self._freed(batch, free)})
        if not (batch or begun or wanted):
            return []
        try:
            with transaction(session) as cursor:
                accepted = complete_runs(cursor, [completion for _, completion in batch])
                mark_started(cursor, [(*one.key, one.took) for one in begun if one.took is not None])
                claimed = self._claimer.claim(cursor, wanted)
        except psycopg.Error:
            if not batch:
                raise
            logger.exception("Outcomes could not be written together: writing them one by one.")
            self._write_singly(session, batch)
            return []
        self._written(batch, accepted)
        for execution in begun:
            execution.marked = True
        return claimed

    def _write_singly(self, session: Session, batch: list[Finished]) -> None:
        """Something in the batch can't be stored. Its run ends and says so; the others' outcomes are written."""
        for execution, completion in batch:
            try:
                with transaction(session) as cursor:
                    accepted = complete_runs(cursor, [completion])
            except psycopg.Error as error:
                with transaction(session) as cursor:
                    accepted = complete_runs(cursor, [execution.unstorable(error)])
            self._written([(execution, completion)], accepted)

    def _written(self, batch: list[Finished], accepted: dict[UUID, Status]) -> None:
        """The transaction has committed."""
        self._completer.written(batch, accepted)
        for execution, _ in batch:
            self._running.pop(execution.key, None)

    def _begin(self, session: Session, run: ClaimedRun) -> None:
        execution = Execution(run, str(self._worker))
        self._running[execution.key] = execution
        try:
            registry.find(run.script)
        except Quarantined as error:
            self._set_aside(session, execution, error)
            return
        self._executors[run.pool].submit(execution)

    def _set_aside(self, session: Session, execution: Execution, error: Quarantined) -> None:
        """A script not known here: in a mixed fleet another worker knows it, else the run is quarantined."""
        with transaction(session) as cursor:
            known = someone_knows(cursor, execution.run.script, silence=2 * conf().lease)
        if known:
            self._claimer.excluded.add(execution.run.script)
            self._done(execution, execution.released(str(error)))
        else:
            self._done(execution, execution.quarantined(error))

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
        soonest = LONGEST_SLEEP if self._signals else min(LONGEST_SLEEP, self._claimer.seconds_until_poll(free))
        deadlines = [
            execution.begun_at + execution.run.timeout.total_seconds() - time.monotonic()
            for execution in self._running.values()
            if execution.run.timeout is not None and execution.begun_at is not None
        ]
        return max(0.01, min([soonest, *deadlines]))

    def _on_signal(self, signum: int, frame: Any) -> None:
        self._signals += 1
        grace = conf().grace.total_seconds() if self._signals == 1 else 0.0
        self._deadline = min(self._deadline, time.monotonic() + grace)
        self._wakeup.set()

    def _drained(self) -> bool:
        """Whether nothing is left to do; gives back what is not to be waited for."""
        late = time.monotonic() > self._deadline
        for execution in list(self._running.values()):
            if execution.give_back(begun=late):
                self._completer.add(execution, execution.released("The worker was shut down."))
        return not self._running

    def _read_control(self) -> None:
        """Messages of the supervisor: runs that somebody cancelled."""
        while self._control.poll():
            for run, claim in self._control.recv():
                if (execution := self._running.get((run, claim))) is not None:
                    execution.interrupt(CancelledByRequest)


def _given_back(run: UUID, claim: int) -> Completion:
    return Completion(id=run, claim=claim, outcome=Outcome.RELEASED, status=Status.QUEUED, counts=False)
