"""The supervisor: keeps worker children alive, and their leases.

It renews on a session of its own, because a child can't be trusted to: one call into C that holds the interpreter lock
silences every thread of a process for its whole length. A child that is stopped (SIGSTOP) is not renewed for. When a
child dies, what it ran is taken back at once instead of when the leases run out, and another child takes its place:
what had begun is lost, and counts; the rest goes back uncharged. Where a task ignores that its time is over, or that it
was cancelled, its child is killed; then it alone is charged, and what else that child ran is not.

    running ──SIGTERM, SIGINT──► draining (children finish or give back) ──► done
                                  └─ a second signal ends their grace; children left after it are killed

Children ignore signals: Ctrl-C and service managers send theirs to the whole group, and each would count. What comes
within a second counts as one here, too.
"""

import contextlib
import logging
import multiprocessing
import os
import random
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any
from uuid import UUID

from cronoq_django.conf import conf
from cronoq_django.errors import Unavailable
from cronoq_django.models.choices import WorkerStatus
from cronoq_django.models.ids import uuid7
from cronoq_django.store.runs import complete_runs, owned_runs, renew_leases, take_back_from
from cronoq_django.store.session import Session, connect, listen, transaction, wait
from cronoq_django.store.workers import heartbeat_worker
from cronoq_django.worker.charging import Ledger
from cronoq_django.worker.claimer import MOST_AHEAD
from cronoq_django.worker.executor import Execution
from cronoq_django.worker.orphan import exit_with_parent
from cronoq_django.worker.sessions import ANSWER, HURRIED_ANSWER, SHUTDOWN, session_settings
from cronoq_django.worker.spawn import child_main

logger = logging.getLogger("cronoq.worker")

LOOK = 0.2  # seconds between two looks at the children
LONGEST_HEARTBEAT = timedelta(seconds=5)
KILL_AFTER = timedelta(seconds=5)  # beyond the grace


@dataclass(slots=True)
class _ChildProcess:
    worker: UUID
    process: SpawnProcess
    control: Connection
    ledger: Ledger
    started_at: float
    is_draining: bool = False
    is_retiring: bool = False  # by itself: another one is to take its place
    cancels: dict[int, float] = field(default_factory=dict)  # claims; until when they may end by themselves, monotonic
    why: str = ""  # it was ended by us
    overdue: set[int] = field(default_factory=set)  # the claims that it was ended for

    def tell(self, what: str, value: Any) -> None:
        """Send it a message. If it has just died, what it ran is taken back."""
        with contextlib.suppress(OSError):
            self.control.send((what, value))

    def kill(self, why: str) -> None:
        """End it at once; only what was overdue then is charged."""
        self.why = self.why or why
        self.overdue |= self.ledger.overdue()
        self.process.kill()

    @property
    def ignores_cancel(self) -> bool:
        """Whether something that was cancelled has not ended within the grace."""
        now = time.monotonic()
        return any(claim in self.cancels and now > self.cancels[claim] for claim in self.ledger.begun())

    @property
    def is_frozen(self) -> bool:
        """Whether it is stopped by a signal; only Linux tells."""
        try:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in ("T", "t")
        except (OSError, IndexError):
            return False


@dataclass(frozen=True, slots=True)
class _Dead:
    """A child whose end the database does not know yet."""

    worker: UUID
    status: WorkerStatus
    begun: set[int]  # the claims that are lost with it
    overdue: set[int]  # the claims whose time was over
    why: str  # the others go back


class Supervisor:
    """A worker command: `processes` children, each serving `pools` (concurrency by pool). `run()` ends when drained."""

    def __init__(
        self,
        *,
        alias: str,
        pools: Mapping[str, int],
        processes: int = 1,
        name: str = "",
        hurried: bool = True,
        max_runs: int | None = None,
        max_rss: int | None = None,
    ) -> None:
        """`hurried`: a second signal ends the grace. Beside a leader it doesn't, since both get the first one.

        A child is replaced after `max_runs` runs, or once it has `max_rss` bytes of memory.
        """
        self._alias = alias
        self._pools = dict(pools)
        self._processes = processes
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._hurried = hurried
        self._context = multiprocessing.get_context("spawn")
        self._children: list[_ChildProcess] = []
        self._limits = {"max_runs": max_runs, "max_rss": max_rss}
        self._dead: list[_Dead] = []
        self._session: Session | None = None
        self._is_away = False  # the database, when it was last asked
        self._signals = 0
        self._signalled_at = float("-inf")
        self._told = 0  # how many of the signals the children know of
        self._kill_at = float("inf")
        self._next_beat = 0.0

    def run(self) -> None:
        """Supervise until drained."""
        exit_with_parent()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        pools = ", ".join(f"{pool}={size}" for pool, size in self._pools.items())
        logger.info("Worker %s: %d × %s.", self._name, self._processes, pools)
        try:
            while (self._processes and not self._signals) or self._children or self._dead:
                self._tell_children()
                self._look()
                self._beat_or_put_off()
                if self._is_away and self._signals and not self._children:
                    break  # what the dead ran comes back when the leases run out
                self._rest()
        finally:
            for child in self._children:  # nobody would renew for them
                child.process.kill()
            self._disconnect()
        logger.info("Worker %s has stopped.", self._name)

    def _on_signal(self, signum: int, frame: Any) -> None:
        now = time.monotonic()
        if now > self._signalled_at + 1 and (self._hurried or not self._signals):
            self._signals += 1
            self._signalled_at = now

    def _tell_children(self) -> None:
        """Pass a new signal on: the first one with the grace, a second one without."""
        if self._told == self._signals:
            return
        self._told = self._signals
        grace = conf().grace if self._signals == 1 else timedelta()
        self._kill_at = min(self._kill_at, time.monotonic() + (grace + KILL_AFTER).total_seconds())
        for child in self._children:
            child.tell("drain", grace.total_seconds())

    def _beat_or_put_off(self) -> None:
        """Beat if it is time."""
        try:
            self._beat()
        except Unavailable as error:
            logger.warning("The database is unavailable, leases are not renewed: %s", error)
        except Exception:  # a bug, or tables that a deploy is changing: without us, living children lose their runs
            logger.exception("Leases are not renewed.")
        else:
            return
        self._disconnect()
        self._is_away = True
        # Who is to stop has children to watch, and can't while it waits for a connection.
        self._next_beat = time.monotonic() + (5.0 if self._signals else random.uniform(0.5, 1.5))  # noqa: S311

    def _rest(self) -> None:
        """A moment's pause. A cancel does not wait for the next heartbeat: it ends the pause, and that one comes."""
        if self._session is None:
            time.sleep(LOOK)
            return
        try:
            if wait(self._session, LOOK):
                self._next_beat = 0.0
        except Unavailable as error:
            logger.warning("The database is unavailable: %s", error)
            self._disconnect()

    def _look(self) -> None:
        """Bury dead children, start missing ones, kill those that outlived a grace."""
        for child in list(self._children):
            with contextlib.suppress(EOFError, OSError):  # it has just died
                if child.control.poll() and child.control.recv() == "retiring":
                    child.is_retiring = True
            if child.process.is_alive():
                if time.monotonic() > self._kill_at:
                    logger.error("Worker process %s outlived its grace: killed.", child.process.pid)
                    child.kill(SHUTDOWN)
                elif child.ledger.overdue() or child.ignores_cancel:
                    logger.error("Worker process %s is killed: a task ignores that it is over.", child.process.pid)
                    child.kill("Its process was ended, since another task in it did not end.")
                continue
            code = child.process.exitcode
            if code and not child.why:
                logger.error("Worker process %s died (exit code %s).", child.process.pid, code)
            self._dead.append(
                _Dead(
                    child.worker,
                    WorkerStatus.LOST if code else WorkerStatus.STOPPED,
                    begun=set() if child.why or not code else child.ledger.begun(),
                    overdue=child.overdue,
                    why=child.why or SHUTDOWN,
                )
            )
            self._children.remove(child)
            child.control.close()
            if not self._is_away:
                self._next_beat = 0.0
            if time.monotonic() - child.started_at < 1 and not self._signals:
                time.sleep(random.uniform(0.5, 1.5))  # noqa: S311  (a child that can't start must not spin)
        while not self._signals and sum(not child.is_retiring for child in self._children) < self._processes:
            self._start()

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        worker = uuid7()
        # Twice what it holds: as many again are claimed while the rows of all that have ended are busy.
        ledger = Ledger(self._context, 2 * (sum(self._pools.values()) + MOST_AHEAD * len(self._pools)))
        options = {
            "alias": self._alias,
            "worker": worker,
            "name": f"{self._name}-{len(self._children) + 1}",
            "pools": self._pools,
            "ledger": ledger,
            **self._limits,
        }
        process = self._context.Process(target=child_main, args=(theirs, options), name=f"cronoq-worker-{worker}")
        process.start()
        theirs.close()
        self._children.append(_ChildProcess(worker, process, ours, ledger, time.monotonic()))

    def _beat(self) -> None:
        """Renew leases and heartbeats, and pass cancels on. Raises Unavailable."""
        if time.monotonic() < self._next_beat:
            return
        if self._session is None:
            self._session = connect(
                self._alias, name="cronoq supervisor", settings=session_settings(), patience=self._patience
            )
            listen(self._session, "cancel")
        for child in self._children:
            if not child.is_frozen:
                self._renew(self._session, child)
        for dead in list(self._dead):
            self._bury(self._session, dead)
            self._dead.remove(dead)
        self._is_away = False
        self._next_beat = time.monotonic() + min(conf().lease / 3, LONGEST_HEARTBEAT).total_seconds()

    def _bury(self, session: Session, dead: _Dead) -> None:
        """Take back what a dead child ran."""
        with transaction(session) as cursor:
            overdue = [run for run in owned_runs(cursor, dead.worker) if run.claim in dead.overdue]
            complete_runs(cursor, [Execution(run, str(dead.worker)).killed() for run in overdue])
            taken_back = take_back_from(cursor, dead.worker, begun=dead.begun, why=dead.why)
            heartbeat_worker(cursor, worker=dead.worker, status=dead.status)
        for run, became in taken_back.items():
            logger.warning("Run %s was given up with its worker: %s.", run, became)

    def _renew(self, session: Session, child: _ChildProcess) -> None:
        """Leases first, in a transaction of their own: nothing else may hold them up."""
        begun = child.ledger.begun()
        with transaction(session) as cursor:
            leases = renew_leases(cursor, worker=child.worker, lease=conf().lease)
            if lost := begun - {claim for _, claim, _ in leases}:  # or locked by somebody, or written just now
                lost -= {run.claim for run in owned_runs(cursor, child.worker)}
        with transaction(session) as cursor:
            drains = self._signals or child.is_draining or child.is_retiring
            status = WorkerStatus.DRAINING if drains else WorkerStatus.ONLINE
            drain = heartbeat_worker(cursor, worker=child.worker, status=status)
        if cancelled := [(run, claim) for run, claim, requested in leases if requested]:
            child.tell("cancel", cancelled)
            end = time.monotonic() + conf().grace.total_seconds()
            child.cancels = {claim: child.cancels.get(claim, end) for _, claim in cancelled}
        if lost:
            child.tell("lost", lost)
        if drain and not child.is_draining:
            child.is_draining = True
            self._processes -= 1  # it is not to be replaced
            child.tell("drain", conf().grace.total_seconds())

    def _patience(self) -> float:
        return HURRIED_ANSWER if self._signals else ANSWER

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
