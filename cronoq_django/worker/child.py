"""A child: one loop on one session, and threads that execute.

    claim ──► hand to a thread ──► outcome ──► written in the next transaction, together with the next claim

One transaction a round writes the outcomes that have come in, notes which runs have begun, and claims for the free
threads, and a little ahead. Outcomes wait in the completer until that has committed; when the database is away, tasks
go on, outcomes wait. After a lost session the child reads back what it owns: a claim whose commit was not heard of is
given back. So is what was claimed ahead and finds no thread for a second: another worker may have one.

Drain (the supervisor says so): nothing is claimed any more, what has not begun goes back at once, what executes may end
within the grace; then it goes back too, uncharged. A child that has executed or grown enough drains by itself, without
a deadline, and another one takes its place. Signals are the supervisor's: several would reach a child, its own and
those that go to the whole group, and each could end the grace.
"""

import logging
import os
import random
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from uuid import UUID

import psycopg
from psycopg import Notify

import cronoq_django
from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import Quarantined, Unavailable
from cronoq_django.models.choices import WorkerStatus
from cronoq_django.store.rounds import write_round
from cronoq_django.store.runs import ClaimedRun, Completed, Completion, Detail, complete_runs, owned_runs, write_details
from cronoq_django.store.session import Session, connect, listen, transaction
from cronoq_django.store.workers import heartbeat_worker, register_worker, someone_knows
from cronoq_django.tasks.context import RunLog
from cronoq_django.worker.charging import Ledger
from cronoq_django.worker.claimer import Claimer
from cronoq_django.worker.completer import Completer, Finished
from cronoq_django.worker.executor import CancelledByRequest, Execution, Executor, LeaseLost, TimedOut
from cronoq_django.worker.memory import resident
from cronoq_django.worker.orphan import exit_with_parent
from cronoq_django.worker.sessions import ANSWER, SHUTDOWN, session_settings
from cronoq_django.worker.wakeup import Wakeup

logger = logging.getLogger("cronoq.worker")

MARK_AFTER = 0.1  # seconds: a quicker run is never marked as begun, which spares a write
LONGEST_SLEEP = 1.0
TELL_EVERY = 1.0  # seconds: how old a progress may be that people see
PATIENCE = 1.0  # seconds: how long a run may wait for a thread of this child
STEADY = 10.0  # seconds: who fails sooner waits longer before trying again


class Child:
    """One worker: an identity, its pools, its session."""

    def __init__(
        self,
        control: Connection,
        *,
        alias: str,
        worker: UUID,
        name: str,
        pools: Mapping[str, int],
        ledger: Ledger,
        max_runs: int | None = None,
        max_rss: int | None = None,
    ) -> None:
        self._control = control
        self._alias = alias
        self._worker = worker
        self._name = name
        self._pools = dict(pools)
        self._ledger = ledger
        self._max_runs = max_runs
        self._max_rss = max_rss
        self._channels: dict[str, str] = {}  # pools
        self._executed = 0
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
            channels = listen(session, *(f"pool:{pool}" for pool in self._pools))
            self._channels = dict(zip(channels, self._pools, strict=False))
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
            strangers = [run for run in owned_runs(cursor, self._worker) if (run.id, run.claim) not in self._running]
            if complete_runs(cursor, [Execution(run, "").released("") for run in strangers]).busy:
                raise Unavailable("a run that is to be given back is locked")

    def _work(self, session: Session) -> None:
        """Rounds until drained. Raises Unavailable when the session is lost."""
        while True:
            self._read_control()
            if self._draining and self._drained():
                return
            claimed = self._write_and_claim(session)
            for run in claimed:
                self._begin(session, run)
            self._watch_time()
            self._retire_if_due()
            self._wake(self._wakeup.wait(session, 0.0 if claimed else self._sleep()))

    def _wake(self, notified: list[Notify]) -> None:
        """Some of what is waited for was queued."""
        heard = [(self._channels[one.channel], one.payload) for one in notified if one.channel in self._channels]
        self._claimer.wake((pool, int(payload)) for pool, payload in heard if payload.lstrip("-").isdecimal())

    def _write_and_claim(self, session: Session) -> list[ClaimedRun]:
        """One round's transaction, if there is anything to write or to ask."""
        batch = self._completer.batch()
        begun = self._unmarked()
        suspects = not any(execution.run.is_suspect for execution in self._running.values())
        claims = [] if self._draining else self._claimer.claims(session, self._held(batch), suspects=suspects)
        details = self._news(batch)
        if not (batch or begun or claims or details):
            return []
        try:
            done = write_round(
                session,
                details=[detail for _, detail in details],
                completions=[completion for _, completion in batch],
                begun=[(*one.key, one.took) for one in begun if one.took is not None],
                claims=claims,
            )
        except (psycopg.Error, Unavailable) as error:
            for execution, _ in details:
                execution.report.keep()
            if not batch or isinstance(error, Unavailable):
                raise
            logger.exception("Outcomes could not be written together: writing them one by one.")
            self._write_singly(session, batch)
            return []
        self._written(batch, done.completed)
        self._claimer.answered(claims, done.claimed)
        for execution in begun:
            execution.marked = execution.key in done.marked
        return [run for runs in done.claimed for run in runs]

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
        for execution, completion in batch:
            if execution.key in completed.busy:  # by a renewal, as a rule, of all that is here
                execution.was_busy = True
            else:
                self._running.pop(execution.key, None)
                execution.entry.forget()
                if completion.took is not None:
                    self._claimer.took(execution.run.pool, completion.took.total_seconds())
                    self._executed += 1

    def _begin(self, session: Session, run: ClaimedRun) -> None:
        execution = Execution(run, str(self._worker), self._ledger)
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

    def _held(self, batch: Sequence[Finished] = ()) -> dict[str, int]:
        """How many runs of each pool are here, once this batch is written: its transaction claims for them already.

        Not for those that were busy the last time: what is here could grow and grow.
        """
        held = dict.fromkeys(self._pools, 0)
        for execution in self._running.values():
            held[execution.run.pool] += 1
        for execution, _ in batch:
            held[execution.run.pool] -= not execution.was_busy
        return held

    def _unmarked(self) -> list[Execution]:
        now = time.monotonic()
        return [
            one
            for one in self._running.values()
            if not one.marked and one.begun_at is not None and now - one.begun_at > MARK_AFTER
        ]

    def _watch_time(self) -> None:
        """End what is out of time, and give back what waits too long for a thread."""
        for execution in self._running.values():
            if execution.is_out_of_time:
                execution.interrupt(TimedOut)
            elif execution.begun_at is None and time.monotonic() > execution.claimed_at + PATIENCE:
                self._claimer.stalled(execution.run)
                self._give_back(execution, "No thread was free.")

    def _give_back(self, execution: Execution, why: str, *, begun: bool = False) -> None:
        if execution.give_back(begun=begun):
            self._completer.add(execution, execution.released(why))

    def _retire_if_due(self) -> None:
        """Drain, without a deadline, after so many runs, or grown so big; the supervisor starts another child."""
        has_done = self._max_runs is not None and self._executed >= self._max_runs
        has_grown = self._max_rss is not None and resident() >= self._max_rss
        if not self._draining and (has_done or has_grown):
            logger.info("Worker %s is replaced: %d runs, %d MB.", self._name, self._executed, resident() >> 20)
            self._draining = True
            self._control.send("retiring")

    def _sleep(self) -> float:
        if any(not execution.marked and execution.begun_at is not None for execution in self._running.values()):
            return MARK_AFTER
        poll = self._claimer.seconds_until_poll(self._held())
        soonest = LONGEST_SLEEP if self._draining else min(LONGEST_SLEEP, poll)
        deadlines = [
            execution.begun_at + execution.run.timeout.total_seconds() - time.monotonic()
            for execution in self._running.values()
            if execution.run.timeout is not None and execution.begun_at is not None
        ]
        return max(0.01, min([soonest, *deadlines]))

    def _drained(self) -> bool:
        """Whether nothing is left to do; gives back what is not to be waited for."""
        late = time.monotonic() > self._deadline
        for execution in self._running.values():
            self._give_back(execution, SHUTDOWN, begun=late)
        return not self._running

    def _read_control(self) -> None:
        """Messages of the supervisor: to drain within some seconds, or runs that somebody cancelled or took over."""
        while self._control.poll():
            match self._control.recv():
                case "drain", grace:
                    self._draining = True
                    self._deadline = min(self._deadline, time.monotonic() + grace)
                case "cancel", keys:
                    for key in keys:
                        if (execution := self._running.get(key)) is not None:
                            self._give_back(execution, "")  # it has not begun: then it ends as cancelled
                            execution.interrupt(CancelledByRequest)
                case "lost", claims:
                    for execution in self._running.values():
                        if execution.run.claim in claims:
                            execution.interrupt(LeaseLost)
