"""Charging: which claims have begun, kept where the supervisor reads it when this process has died.

An attempt counts once it has begun. Rows tell that late, and only of those that took a while; the memory that a child
shares with its supervisor tells it at once, whatever ended the child. For each claim that has begun it also says when
the supervisor has to end the process: a task that does not hear of its timeout, in a call into C that holds the
interpreter lock, keeps its own process from ending it.

An entry has a claim from its beginning until its outcome has committed. Only the child writes; the claim is written
last, and numbers of eight bytes are not torn.
"""

import ctypes
import time
from multiprocessing.context import SpawnContext
from typing import Any

NEVER = float("inf")


class Ledger:
    """The memory of one child, with room for `size` claims."""

    def __init__(self, context: SpawnContext, size: int) -> None:
        self.claims: Any = context.RawArray(ctypes.c_int64, size)
        self.ends: Any = context.RawArray(ctypes.c_double, size)  # monotonic, the same clock in every process
        self.free = list(range(size))  # the entries that have no claim: the child's

    def begun(self) -> set[int]:
        """The claims that have begun, and whose outcome is not known to be written."""
        return {claim for claim in self.claims if claim}

    def overdue(self) -> set[int]:
        """The claims whose process is to be ended, since they don't."""
        now = time.monotonic()
        return {claim for claim, end in zip(self.claims, self.ends, strict=True) if claim and end < now}


class Entry:
    """Of one claim, in the ledger of its process; without one, nobody asks."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._number: int | None = None

    def begin(self, claim: int, end: float) -> None:
        """It begins; at `end` (monotonic) the supervisor ends the process."""
        if self._ledger is not None and self._ledger.free:
            self._number = self._ledger.free.pop()
            self._ledger.ends[self._number] = end
            self._ledger.claims[self._number] = claim

    def end_by(self, end: float) -> None:
        """The supervisor ends the process at `end`, if not before; NEVER: the task has ended by itself."""
        if self._ledger is not None and self._number is not None:
            self._ledger.ends[self._number] = end

    def forget(self) -> None:
        """Its outcome is written."""
        if self._ledger is not None and self._number is not None:
            self._ledger.claims[self._number] = 0
            self._ledger.free.append(self._number)
            self._number = None
