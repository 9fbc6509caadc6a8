"""Marks: from where on to look for work, so that a claim costs the same however many were claimed before it.

A claimed run leaves a dead entry in the index of the queue, and as long as any transaction that is older stays open, on
whatever table, nobody can remove it. Claims that began at the front of the index walked all of them: 22,000 runs a
second became 9,000 behind 100,000 dead entries, and fewer with each more. So the claimer remembers, for each priority,
the place of what it claimed, and begins a little before it.

    look ──► a mark for each priority that is there ──claim, commit──► the mark moves on ──look──► …

A look, which begins at the front, is still needed: a run can be committed late, behind the mark, and one that another
claimer took may come back. It costs what the marks save, so the more it costs the rarer it is: when something was
queued, and at each poll, but not more than a fiftieth of the time, or once in five seconds.
"""

import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from cronoq_django.conf import conf
from cronoq_django.store.runs import ClaimedRun, Place

SLACK = 200  # claims: so far behind the last one a mark stays, so that what is committed a little late is found at once
SHARE = 50.0  # times what the last look took: the least time until the next one
LONGEST = 5.0  # seconds until then, at most: on a busy machine a look of seconds had runs wait for minutes
MOST = 64  # marks: each costs a claim one descent in the index
FRONT = datetime(1, 1, 2, tzinfo=UTC), UUID(int=0)


class Marks:
    """Of one pool, for one claimer."""

    def __init__(self) -> None:
        self._marks: dict[int, Place] = {}
        self._claims: dict[int, deque[Place]] = {}  # by priority: the last ones
        self._looked_at = self._took = float("-inf")  # monotonic; seconds

    @property
    def in_order(self) -> list[Place]:
        """The most urgent priority first."""
        return sorted(self._marks.values(), key=lambda place: -place.priority)

    def are_due(self, *, woken: bool) -> bool:
        """Whether it is time for a look; `woken`: something was queued since the last one."""
        pause = 0.0 if woken else conf().poll.total_seconds()
        return time.monotonic() >= self._looked_at + max(pause, min(SHARE * self._took, LONGEST))

    def looked(self, places: Sequence[Place], took: float) -> None:
        """This is where each priority that is there begins; the look took so many seconds. Where nothing is queued, the
        mark stays: what comes will come after it."""
        if len(self._marks) > MOST:
            self._marks.clear()
        for place in places:
            self._marks[place.priority] = place
            self._claims.pop(place.priority, None)
        self._looked_at, self._took = time.monotonic(), took

    def heard(self, priority: int) -> None:
        """Something of that priority was queued."""
        self._marks.setdefault(priority, Place(priority, *FRONT))

    def returned(self, run: ClaimedRun) -> None:
        """It goes back to its place, which may lie before the mark by now."""
        place = Place(run.priority, run.due_at, run.id)
        if run.priority in self._marks and place < self._marks[run.priority]:
            self._marks[run.priority] = place
            self._claims.pop(run.priority, None)

    def claimed(self, runs: Sequence[ClaimedRun]) -> None:
        """These were claimed, and that has committed."""
        for run in runs:
            claims = self._claims.setdefault(run.priority, deque(maxlen=SLACK))
            claims.append(Place(run.priority, run.due_at, run.id))
            if len(claims) == SLACK:
                self._marks[run.priority] = claims[0]
