"""The loop: lead while we can, stand by while another does.

One round of a leader: a heartbeat if one is due, then each stage whose time has come, one step (one fenced transaction)
at a time while it finds work and its budget lasts. Then sleep until the nearest known time, a second, or a NOTIFY. Due
rows are read from SQL every time; no schedule is kept in memory, so nothing here can be stale.

A stage that fails is noted and tried again; the others go on. `Fenced` or a lost session ends the term: the session is
thrown away, and the process stands by with a new one.
"""

import logging
import random
import time
from datetime import timedelta

from cronoq_django.conf import conf
from cronoq_django.errors import Fenced, Unavailable
from cronoq_django.leader import recovery
from cronoq_django.leader.election import Election, Identity
from cronoq_django.leader.fence import Fence
from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages import all_stages
from cronoq_django.models.choices import CoordinatorStatus
from cronoq_django.store import leadership, slots

logger = logging.getLogger("cronoq.leader")

STANDBY_POLL = 0.5  # seconds between two tries for the lock
STEADY = 10.0  # seconds: who fails sooner waits longer before trying again
LONGEST_SLEEP = 0.5  # seconds; also how long a stop signal may go unnoticed


class Leader:
    """A leader-command process: leads, or stands by. `run()` returns after `stop()`; nothing else ends it."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._identity = Identity()
        self._stopping = False  # a plain flag: an Event set in a signal handler can deadlock with its own wait

    def stop(self) -> None:
        """Finish the current step, resign, and return from `run`. Safe to call in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Stand by and lead until stopped, through every loss of the database."""
        failures = 0
        while not self._stopping:
            begun = time.monotonic()
            try:
                self._take_part()
            except Fenced as error:
                logger.warning("Stepping down: %s", error)
            except Unavailable as error:
                logger.warning("Stepping down, the database is unavailable: %s", error)
            except Exception:  # a bug, or tables that a deploy is changing: it surfaces here, and must not end us
                logger.exception("Stepping down.")
            else:
                continue
            failures = failures + 1 if time.monotonic() < begun + STEADY else 0
            self._pause(min(5.0, 0.25 * 2 ** min(failures, 5)) * random.uniform(0.5, 1.0))  # noqa: S311

    def _take_part(self) -> None:
        """Stand by and lead on one session, for as long as that lasts."""
        election = Election(self._alias, self._identity)
        try:
            self._stand_by(election)
        finally:
            election.close()

    def _stand_by(self, election: Election) -> None:
        logger.info("Standing by.")
        heartbeat = time.monotonic()
        while not self._stopping:
            fence = election.try_to_lead()
            if fence is not None:
                self._lead(election, fence)
                return
            if time.monotonic() >= heartbeat:
                election.register(CoordinatorStatus.STANDBY)
                heartbeat = time.monotonic() + election.ttl.total_seconds() / 2
            election.wait(STANDBY_POLL * random.uniform(0.7, 1.3))  # noqa: S311
        election.register(CoordinatorStatus.STOPPED)

    def _lead(self, election: Election, fence: Fence) -> None:
        logger.info("Leading, epoch %d.", fence.term.epoch)
        recovered = recovery.recover(fence, election.identity)
        logger.info("Recovered: %s", ", ".join(f"{name} {number}" for name, number in recovered.items()))
        heart = _Heart(election, fence)
        stages = all_stages(declared_at=election.registered_at)
        while not self._stopping:
            heart.beat(stages)
            for stage in stages:
                if stage.is_due() and not self._stopping:
                    self._run_stage(stage, fence, heart)
            election.wait(self._sleep(fence, stages))
        with fence.transaction() as tx:
            leadership.close_term(tx, ended="resigned: the process was stopped")
        logger.info("Resigned, epoch %d.", fence.term.epoch)
        election.register(CoordinatorStatus.STOPPED)

    def _run_stage(self, stage: Stage, fence: Fence, heart: "_Heart") -> None:
        """Step the stage while it finds work and its budget lasts."""
        begun = time.monotonic()
        rows, error, again = 0, "", True
        try:
            while again:
                with fence.transaction() as tx:
                    done = stage.step(tx)
                rows += done
                again = done >= stage.batch and time.monotonic() < begun + heart.ttl / 10 and not self._stopping
        except Fenced:
            raise
        except Unavailable as failure:
            if fence.is_lost:
                raise
            # Somebody held a lock for too long, or a deadlock was resolved at our cost: no reason to stop leading.
            logger.warning("Stage %s is put off: %s", stage.name, failure)
            error = f"put off: {failure}"
        except Exception as failure:
            logger.exception("Stage %s failed.", stage.name)
            error = f"{type(failure).__name__}: {failure}"
        stage.ran(
            rows=rows, duration=timedelta(seconds=time.monotonic() - begun), error=error, again=again and not error
        )

    def _sleep(self, fence: Fence, stages: list[Stage]) -> float:
        """Seconds until the next thing to do."""
        with fence.transaction() as tx:
            due = slots.seconds_until_due(tx)
        soonest = min(stage.seconds_until_due() for stage in stages)
        # What is due already was handled this round, or is held elsewhere: soon, but not at once.
        return min(LONGEST_SLEEP, soonest, LONGEST_SLEEP if due is None else due if due > 0 else 0.05)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(0.1, left))


class _Heart:
    """The leader's heartbeat, every fifth of the TTL; with it, how the stages went."""

    def __init__(self, election: Election, fence: Fence) -> None:
        self._election = election
        self._fence = fence
        self._next = 0.0
        self.ttl = conf().leader_ttl.total_seconds()

    def beat(self, stages: list[Stage]) -> None:
        """Beat if it is time. Raises Fenced or Unavailable."""
        if time.monotonic() < self._next:
            return
        with self._fence.transaction() as tx:
            leadership.renew_term(tx)
        try:
            self._keep_books(stages)
        except Unavailable as error:
            if self._fence.is_lost:
                raise
            logger.warning("Bookkeeping is put off: %s", error)
        self._next = time.monotonic() + self.ttl / 5

    def _keep_books(self, stages: list[Stage]) -> None:
        with self._fence.transaction() as tx:
            for stage in stages:
                if stage.last is not None:
                    leadership.record_stage(
                        tx, name=stage.name, duration=stage.last.duration, rows=stage.last.rows, error=stage.last.error
                    )
                    stage.last = None
        self._election.register(CoordinatorStatus.LEADING)
