"""The claimer: decides when to ask the database for work, where, and for how much.

It asks for as many runs as a pool has free threads, and for some more where runs are so short that the threads would
wait for the database: as many as they execute in a twentieth of a second. A short answer means that the queue was
empty: it asks again when notified, or after a pause, which grows from a hundredth of a second to the poll interval. A
full one means that there may be more: it asks again once half of what it wants is free.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from cronoq_django.conf import conf
from cronoq_django.store.runs import ClaimedRun, claim_of, look_for_runs
from cronoq_django.store.session import Session, transaction
from cronoq_django.worker.marks import Marks

EXCLUDED = 30.0  # seconds
AHEAD = 0.05  # seconds of work that are claimed ahead
MOST_AHEAD = 200  # runs
SHORTEST_PAUSE = 0.01  # seconds


class _Pool:
    """What is known of one pool."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.marks = Marks()
        self.pace = float("inf")  # seconds that a run takes, of late
        self.is_full = False  # whether the last answer was
        self.ask_at = 0.0  # monotonic
        self.pause = 0.0
        self.is_woken = False  # since the last look

    @property
    def ahead(self) -> int:
        """How many runs to claim beyond the threads."""
        return min(MOST_AHEAD, int(AHEAD * self.size / max(self.pace, 1e-6)))

    def wake(self) -> None:
        self.ask_at = self.pause = 0.0
        self.is_woken = True

    def rest(self) -> None:
        """Nothing is there: pause, longer each time."""
        self.pause = min(conf().poll.total_seconds(), max(SHORTEST_PAUSE, 2 * self.pause))
        self.ask_at = time.monotonic() + self.pause

    def look(self, session: Session, name: str) -> None:
        """See where the queue begins. Raises Unavailable."""
        asked_at = time.monotonic()
        with transaction(session) as cursor:
            places = look_for_runs(cursor, name)
        self.marks.looked(places, time.monotonic() - asked_at)
        self.is_woken = False

    def wants(self, held: int) -> int:
        """How many runs to ask for now."""
        if held >= self.size:
            room = self.size + self.ahead - held
            return room if self.is_full and room > self.ahead / 2 else 0
        return self.size + self.ahead - held if self.ask_at <= time.monotonic() else 0


class Claimer:
    """Claims for one worker; knows nothing of what becomes of the runs."""

    def __init__(self, worker: UUID, pools: Mapping[str, int]) -> None:
        self._worker = worker
        self._pools = {name: _Pool(size) for name, size in pools.items()}
        self._excluded: dict[str, float] = {}  # scripts that others know and this worker doesn't; until when, monotonic

    def exclude(self, script: str) -> None:
        """Leave a script to those who know it, for a while: they may be gone by then."""
        self._excluded[script] = time.monotonic() + EXCLUDED

    def wake(self, queued: Iterable[tuple[str, int]] | None = None) -> None:
        """Something was queued: pools, and its priority; None: who knows what."""
        if queued is None:
            for pool in self._pools.values():
                pool.wake()
            return
        for name, priority in queued:
            self._pools[name].marks.heard(priority)
            self._pools[name].wake()

    def took(self, pool: str, seconds: float) -> None:
        """A run of the pool took so long."""
        known = self._pools[pool]
        known.pace = seconds if known.pace == float("inf") else known.pace + (seconds - known.pace) / 10

    def stalled(self, run: ClaimedRun) -> None:
        """It was claimed ahead, and found no thread: it goes back, and nothing is claimed ahead for now."""
        self._pools[run.pool].pace = 1.0
        self._pools[run.pool].marks.returned(run)

    def claims(self, session: Session, held: Mapping[str, int], *, suspects: bool = True) -> list[dict[str, Any]]:
        """What to ask for now, for each pool that has room beside what is held; for no `suspects` where one is.

        Raises Unavailable.
        """
        excluded = [script for script, until in self._excluded.items() if until > time.monotonic()]
        claims = []
        for name, pool in self._pools.items():
            if (limit := pool.wants(held[name])) <= 0:
                continue
            if pool.marks.are_due(woken=pool.is_woken):
                pool.look(session, name)
            if not (marks := pool.marks.in_order):
                pool.rest()
                continue
            claims.append(
                claim_of(
                    worker=self._worker,
                    pool=name,
                    limit=limit,
                    free=max(0, pool.size - held[name]),
                    lease=conf().lease,
                    marks=marks,
                    excluded=excluded,
                    suspects=suspects,
                )
            )
        return claims

    def answered(self, claims: Sequence[dict[str, Any]], answers: Sequence[list[ClaimedRun]]) -> None:
        """This was claimed, and that has committed."""
        for claim, runs in zip(claims, answers, strict=True):
            pool = self._pools[claim["pool"]]
            pool.marks.claimed(runs)
            pool.is_full = len(runs) == claim["limit"]
            if runs:
                pool.pause = 0.0
            if len(runs) < claim["free"]:
                pool.rest()

    def seconds_until_poll(self, held: Mapping[str, int]) -> float:
        """How long the loop may sleep if nothing happens."""
        pending = [pool.ask_at for name, pool in self._pools.items() if held[name] < pool.size]
        return max(0.0, min(pending, default=float("inf")) - time.monotonic())
