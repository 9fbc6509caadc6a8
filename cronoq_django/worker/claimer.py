"""The claimer: decides when to ask the database for work, and for how much.

It asks for as many runs as a pool has free slots. A short answer means that the queue was empty: it asks again when
notified, or after the poll interval. A full answer means there may be more: it asks again as soon as slots are free.
"""

import time
from collections.abc import Mapping
from uuid import UUID

from cronoq_django.conf import conf
from cronoq_django.store.runs import ClaimedRun, claim_runs
from cronoq_django.store.statements import Cursor

EXCLUDED = 30.0  # seconds


class Claimer:
    """Claims for one worker; knows nothing of what becomes of the runs."""

    def __init__(self, worker: UUID, pools: Mapping[str, int]) -> None:
        self._worker = worker
        self._next = dict.fromkeys(pools, 0.0)  # monotonic: when to ask for a pool again
        self._excluded: dict[str, float] = {}  # scripts that others know and this worker doesn't; until when, monotonic

    def exclude(self, script: str) -> None:
        """Leave a script to those who know it, for a while: they may be gone by then."""
        self._excluded[script] = time.monotonic() + EXCLUDED

    def wake(self) -> None:
        """Something was queued."""
        self._next = dict.fromkeys(self._next, 0.0)

    def wanted(self, free: Mapping[str, int]) -> dict[str, int]:
        """How many runs to ask for now, by pool."""
        now = time.monotonic()
        return {pool: slots for pool, slots in free.items() if slots > 0 and self._next[pool] <= now}

    def claim(self, cursor: Cursor, wanted: Mapping[str, int]) -> list[ClaimedRun]:
        """Claim in the caller's transaction; the runs are this worker's once it has committed."""
        claimed: list[ClaimedRun] = []
        excluded = [script for script, until in self._excluded.items() if until > time.monotonic()]
        for pool, slots in wanted.items():
            got = claim_runs(cursor, worker=self._worker, pool=pool, limit=slots, lease=conf().lease, excluded=excluded)
            if len(got) < slots:
                self._next[pool] = time.monotonic() + conf().poll.total_seconds()
            claimed += got
        return claimed

    def seconds_until_poll(self, free: Mapping[str, int]) -> float:
        """How long the loop may sleep if nothing happens."""
        pending = [self._next[pool] for pool, slots in free.items() if slots > 0]
        return max(0.0, min(pending, default=float("inf")) - time.monotonic())
