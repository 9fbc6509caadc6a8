"""Stage: the shape of a leader's duty."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from cronoq_django.conf import conf
from cronoq_django.store.leadership import FencedTransaction

Row = TypeVar("Row")

LONGEST_RETRY = 5.0  # seconds
LONGEST_THOUGHT = 0.5  # seconds, in one step; a stage has twice that for all its steps in a round


@dataclass(frozen=True, slots=True)
class LastRun:
    """How a stage went since that was last written down: rows in all, the longest run, the last error."""

    rows: int
    duration: timedelta
    error: str


class Stage:
    """A duty: comes every `every`, handles up to `batch` rows a step, each step in one fenced transaction."""

    name: str
    every = timedelta(seconds=1)
    batch = 500
    prompt = False  # part of every round, so that a notification or a due instant is answered at once
    recovers = ""  # what its first whole run in a term has set right, in words, if that belongs to recovery

    def __init__(self) -> None:
        self.last: LastRun | None = None
        self.trouble = ""  # what a step had to set aside, for people to see
        self.failures = 0  # runs in a row that failed
        self._due = 0.0

    def step(self, tx: FencedTransaction) -> int:
        """Handle one batch; how many rows, so that the loop comes again while there is a full one."""
        raise NotImplementedError

    def in_time(self, rows: Sequence[Row]) -> Iterator[Row]:
        """The first of `rows`, as many as fit into a step. A transaction that thinks for too long is ended by the
        server, and the leadership with it: after days away, 100 jobs with their missed minutes took that long."""
        until = time.monotonic() + min(conf().leader_ttl.total_seconds() / 20, LONGEST_THOUGHT)
        for number, row in enumerate(rows):
            if number and time.monotonic() > until:
                return
            yield row

    def is_due(self, work: Collection[str]) -> bool:
        """Whether it belongs into this round: a prompt one if it is among those that have `work`, another if its
        interval has passed. One that failed waits longer each time, prompt or not."""
        has_come = time.monotonic() >= self._due
        return self.name in work and (has_come or not self.failures) if self.prompt else has_come

    def seconds_until_due(self) -> float:
        """Seconds until its own interval has passed."""
        return max(0.0, self._due - time.monotonic())

    def ran(self, *, rows: int, duration: timedelta, error: str, again: bool) -> None:
        """Take note of a run; `again`: its budget ended before its work."""
        shown = error or self.trouble
        before = self.last or LastRun(0, timedelta(), "")
        self.last = LastRun(before.rows + rows, max(before.duration, duration), shown or before.error)
        self.trouble = ""
        self.failures = self.failures + 1 if error else 0
        pause = 0.0 if again else self.every.total_seconds()
        if error:
            pause = min(LONGEST_RETRY, 0.25 * 2 ** min(self.failures, 10))
        self._due = time.monotonic() + pause
