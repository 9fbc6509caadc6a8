"""What every schedule is: a set of slots, walked forwards and backwards."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import ClassVar


class Schedule(ABC):
    """A plain value (frozen, hashable, equal when written alike) that knows its slots and nothing else.

    A slot is an aware UTC datetime. Moments handed in may be in any zone but must have one. Slots end with the
    calendar, in year 9999: then there is no next one, never an OverflowError.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """As in the job's column: "cron", "every", "once" or "manual"."""

    @abstractmethod
    def walk(self, after: datetime) -> Iterator[datetime]:
        """The slots strictly later than `after`, increasing."""

    @abstractmethod
    def walk_back(self, before: datetime) -> Iterator[datetime]:
        """The slots strictly earlier than `before`, decreasing."""

    @abstractmethod
    def explain(self) -> str:
        """The schedule in English words: "every 5 minutes"."""

    def next(self, after: datetime) -> datetime | None:
        """The first slot strictly later than `after`, or None when there is none any more."""
        return next(self.walk(after), None)

    def previous(self, before: datetime) -> datetime | None:
        """The last slot strictly earlier than `before`, or None when there was none."""
        return next(self.walk_back(before), None)

    def upcoming(self, after: datetime, count: int) -> list[datetime]:
        """The first `count` slots strictly later than `after`; fewer when they end."""
        return list(islice(self.walk(after), count))

    def count(self, after: datetime, until: datetime, *, limit: int) -> int:
        """How many slots are in (after, until], counted no further than `limit`: a job may have missed millions."""
        number = 0
        for slot in islice(self.walk(after), limit):
            if slot > until:
                break
            number += 1
        return number
