"""Misfire: what becomes of slots that were noticed late."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

MOST_FIRED = 1000
"""So many late slots can fire together: for more, one job's decision took longer than a leader is waited for."""
PUNCTUAL = timedelta(seconds=15)
"""A slot noticed within this time is on time and fires under every policy. A grace of a second lost runs 1.8 s late."""


class Misfire(StrEnum):
    """What to do about late slots. Each policy reaches back `misfire_window` at most, if that is given."""

    SKIP = "skip"
    """None fires. A `misfire_window` then says what is on time instead of `PUNCTUAL`, up to `misfire_limit` slots."""
    LATEST = "latest"
    """Only the newest due slot fires."""
    ALL = "all"
    """The newest `misfire_limit` fire, oldest first."""


def choose(
    newest_first: Iterable[datetime], now: datetime, *, policy: str, window: timedelta | None, limit: int
) -> tuple[list[datetime], datetime | None]:
    """From the due slots, newest first: those that fire (oldest first), and the newest missed one, if any was missed.

    Reads no further than that one, so months of missed slots cost nothing here.
    """
    on_time, limit = PUNCTUAL, min(limit, MOST_FIRED)
    if policy == Misfire.LATEST:
        limit = 1
    elif policy == Misfire.SKIP and window is None:
        limit = 0
    elif policy == Misfire.SKIP and window is not None:
        on_time = min(PUNCTUAL, window)
    fire: list[datetime] = []
    for slot in newest_first:
        late = now - slot
        if late > on_time and (len(fire) >= limit or (window is not None and late > window)):
            return fire[::-1], slot
        fire.append(slot)
    return fire[::-1], None
