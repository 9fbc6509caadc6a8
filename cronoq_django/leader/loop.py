"""The loop: lead while we can, stand by while another does.

One round of a leader: a heartbeat if one is due, then each stage whose time has come. A prompt stage goes on step by
step (one fenced transaction each) while it finds work and its budget lasts; a housekeeping one makes a single step, so
that due slots never wait for more. Then sleep until the nearest known time, half a second, or a NOTIFY. Due rows are
read from SQL every time; no schedule is kept in memory, so nothing here can be stale.

A stage that fails is noted and tried again; the others go on. `Fenced`, a lost session, or a server that does not
answer within the TTL ends the term: the session is thrown away, and the process stands by with a new one.
"""

import logging
import random
import time
from collections.abc import Sequence
from datetime import timedelta

from cronoq_django.conf import conf
from cronoq_django.errors import CannotLead, Fenced, Unavailable
from cronoq_django.leader.election import Election, Identity
from cronoq_django.leader.fence import Fence
from cronoq_django.leader.recovery import Recovery
from cronoq_django.leader.stage import LONGEST_THOUGHT, Stage
from cronoq_django.leader.stages import all_stages
from cronoq_django.models.choices import CoordinatorStatus
from cronoq_django.signals import leadership_gained, leadership_lost
from cronoq_django.store import leadership
from cronoq_django.store.slots import Look

logger = logging.getLogger("cronoq.leader")

STANDBY_POLL = 0.5  # seconds between two tries for the lock
STEADY = 10.0  # seconds: who fails sooner waits longer before trying again
LONGEST_SLEEP = 0.5  # seconds; also how long a stop signal may go unnoticed
STOPPING_PATIENCE = 3.0  # seconds that a silent server may hold up a stop
RESIGNED = "resigned: the process was stopped"


class Leader:
    """A leader-command process: leads, or stands by. `run()` returns after `stop()`; what else ends it is `CannotLead`,
    raised when the way to the database is one on which nobody can lead."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._identity = Identity()
        self._stopping = False  # a plain flag: an Event set in a signal handler can deadlock with its own wait
        self._fence: Fence | None = None
        self._last = leadership.Ended()
        self._late = 0  # rounds in a row after which something was due already

    @property
    def is_leading(self) -> bool:
        """Whether this process leads: the database said so less than a TTL ago, so that nobody else can by now."""
        return self._fence is not None and self._fence.is_trusted

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
            except CannotLead:
                raise
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
        election = Election(self._alias, self._identity, self._patience)
        reason = RESIGNED
        try:
            self._fence = self._stand_by(election)
            if self._fence is not None:
                self._lead(election, self._fence)
        except BaseException as error:
            reason = str(error) or type(error).__name__
            raise
        finally:
            election.close()
            if self._fence is not None:
                term, self._fence = self._fence.term, None
                self._last = leadership.Ended(term.id, reason)
                leadership_lost.send_robust(sender=Leader, leader=self, epoch=term.epoch, reason=reason)

    def _stand_by(self, election: Election) -> Fence | None:
        """The fence of a new term, or None when stopped."""
        logger.info("Standing by.")
        heartbeat = 0.0
        while not self._stopping:
            if (fence := election.try_to_lead()) is not None:
                return fence
            if time.monotonic() >= heartbeat:
                election.register(CoordinatorStatus.STANDBY)
                heartbeat = time.monotonic() + election.ttl.total_seconds() / 2
            election.wait(STANDBY_POLL * random.uniform(0.7, 1.3))  # noqa: S311
        election.register(CoordinatorStatus.STOPPED)
        return None

    def _lead(self, election: Election, fence: Fence) -> None:
        """Lead until stopped, and resign."""
        logger.info("Leading, epoch %d.", fence.term.epoch)
        leadership_gained.send_robust(sender=Leader, leader=self, epoch=fence.term.epoch)
        stages = all_stages(declared_at=election.registered_at)
        recovery = Recovery(fence, election.identity, last=self._last, stages=stages)
        heart = _Heart(election, fence, recovery, stages)
        while not self._stopping:
            heart.beat()
            work = fence.look()
            for stage in stages:
                if stage.is_due(work.stages) and not self._stopping:
                    self._run_stage(stage, fence, heart, recovery)
            election.wait(self._sleep(fence.look(), stages))
        with fence.transaction() as tx:
            leadership.close_term(tx, ended=RESIGNED)
        election.register(CoordinatorStatus.STOPPED)
        election.resign()
        logger.info("Resigned, epoch %d.", fence.term.epoch)

    def _run_stage(self, stage: Stage, fence: Fence, heart: "_Heart", recovery: Recovery) -> None:
        """Step the stage: while it finds work and its budget lasts if it is a prompt one, else once."""
        begun = time.monotonic()
        rows, error, again = 0, "", True
        try:
            while again:
                with fence.transaction() as tx:
                    done = stage.step(tx)
                rows += done
                again = done >= stage.batch
                if not stage.prompt or self._stopping or time.monotonic() > begun + heart.budget:
                    break
                heart.beat()
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
        duration = timedelta(seconds=time.monotonic() - begun)
        stage.ran(rows=rows, duration=duration, error=error, again=again and not error)
        recovery.ran(stage, rows=rows, again=again)

    def _sleep(self, work: Look, stages: Sequence[Stage]) -> float:
        """Seconds until the next thing to do."""
        # What is still there to do was handled this round, or is held elsewhere, or fails: soon, but not at once.
        self._late = self._late + 1 if work.stages else 0
        soon: list[float] = [0.05 * 2 ** min(self._late, 5)] if work.stages else []
        if work.seconds is not None and work.seconds > 0:
            soon.append(work.seconds)
        return min([LONGEST_SLEEP, *soon, *(stage.seconds_until_due() for stage in stages if not stage.prompt)])

    def _patience(self) -> float:
        """For how many seconds of the database's silence a session is trusted: a little less than the TTL, when the
        server may have ended it and another leads."""
        trusted = 0.9 * conf().leader_ttl.total_seconds()
        return min(STOPPING_PATIENCE, trusted) if self._stopping else trusted

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(0.1, left))


class _Heart:
    """The leader's heartbeat, every fifth of the TTL; with it, how recovery and the stages went."""

    def __init__(self, election: Election, fence: Fence, recovery: Recovery, stages: Sequence[Stage]) -> None:
        self._election = election
        self._fence = fence
        self._recovery = recovery
        self._stages = stages
        self._next = 0.0
        self.ttl = election.ttl.total_seconds()
        self.budget = min(self.ttl / 10, 2 * LONGEST_THOUGHT)  # seconds, of a stage in a round

    def beat(self) -> None:
        """Beat if it is time. Raises Fenced or Unavailable."""
        if time.monotonic() < self._next:
            return
        with self._fence.transaction() as tx:
            leadership.renew_term(tx)
        try:
            self._keep_books()
        except Fenced:
            raise
        except Exception as error:  # leading must not wait for it, nor end with it
            if self._fence.is_lost:
                raise
            logger.warning("Bookkeeping is put off: %s", error)
        self._next = time.monotonic() + self.ttl / 5

    def _keep_books(self) -> None:
        with self._fence.transaction() as tx:
            for stage in self._stages:
                if stage.last is not None:
                    leadership.record_stage(
                        tx, name=stage.name, duration=stage.last.duration, rows=stage.last.rows, error=stage.last.error
                    )
            self._recovery.note(tx)
        for stage in self._stages:
            stage.last = None
        self._election.register(CoordinatorStatus.LEADING)
