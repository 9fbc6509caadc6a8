"""Overlap: what a slot does while earlier runs of its job are still open."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Overlap(StrEnum):
    """What happens to a slot for which the job's `concurrency` leaves no room."""

    SKIP = "skip"
    """It is skipped, and recorded as skipped."""
    QUEUE = "queue"
    """Its run is made, and waits until there is room."""
    ALLOW = "allow"
    """It runs anyway."""
    REPLACE = "replace"
    """Its run is made, the open ones are cancelled, and it waits for their end."""


class Admitted(NamedTuple):
    """Slots, oldest first: those that fire, those whose runs wait for room, and those that are skipped."""

    fire: Sequence[datetime]
    wait: Sequence[datetime]
    skipped: Sequence[datetime]


def admit(
    slots: Sequence[datetime], *, policy: str, concurrency: int, open_runs: int, wanted_before: datetime | None = None
) -> Admitted:
    """What becomes of slots that fire otherwise. The oldest have the room, as if each had been noticed at its instant.

    `wanted_before`: slots up to then are being made up for, since the misfire policy asks for every one: `skip` lets
    them wait for each other instead of dropping all but the first.
    """
    room = len(slots) if policy == Overlap.ALLOW else max(concurrency - open_runs, 0)
    fire, rest = slots[:room], slots[room:]
    if policy != Overlap.SKIP:
        return Admitted(fire, rest, ())
    late = 0 if wanted_before is None else sum(slot < wanted_before for slot in rest)
    return Admitted(fire, rest[:late], rest[late:])
