"""Overlap: what a slot does while earlier runs of its job are still open."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum


class Overlap(StrEnum):
    """What happens to a slot for which the job's `concurrency` leaves no room."""

    SKIP = "skip"
    """It is skipped, and recorded as skipped."""
    QUEUE = "queue"
    """Its run is made and waits until there is room."""
    ALLOW = "allow"
    """It runs anyway."""
    REPLACE = "replace"
    """Its run is made and the open ones are cancelled."""


def admit(
    slots: Sequence[datetime], *, policy: str, concurrency: int, open_runs: int
) -> tuple[Sequence[datetime], Sequence[datetime]]:
    """Splits slots (oldest first) into those that fire and those that overlap.

    Only `skip` leaves any out. The oldest fire, as they would have if each had been noticed at its instant. The other
    policies fire all: they are about what the runs do once they are made.
    """
    room = max(concurrency - open_runs, 0) if policy == Overlap.SKIP else len(slots)
    return slots[:room], slots[room:]
