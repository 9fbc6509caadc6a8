"""The schedules that hardly are one: a single slot, and none at all."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from .moment import said, utc
from .schedule import Schedule


@dataclass(frozen=True, slots=True)
class At(Schedule):
    """One slot, at `run_at`."""

    run_at: datetime
    kind: ClassVar[str] = "once"

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_at", utc(self.run_at, "run_at"))

    def walk(self, after: datetime) -> Iterator[datetime]:
        return iter((self.run_at,) if utc(after, "after") < self.run_at else ())

    def walk_back(self, before: datetime) -> Iterator[datetime]:
        return iter((self.run_at,) if self.run_at < utc(before, "before") else ())

    def explain(self) -> str:
        return f"once, at {said(self.run_at)}"


@dataclass(frozen=True, slots=True)
class Manual(Schedule):
    """No slot ever: the job runs when somebody says so."""

    kind: ClassVar[str] = "manual"

    def walk(self, after: datetime) -> Iterator[datetime]:
        utc(after, "after")
        return iter(())

    def walk_back(self, before: datetime) -> Iterator[datetime]:
        utc(before, "before")
        return iter(())

    def explain(self) -> str:
        return "only by hand"


def at(run_at: datetime) -> At:
    """A schedule with the one slot `run_at`, which must have a time zone."""
    return At(run_at)


def manual() -> Manual:
    """A schedule that never fires by itself."""
    return Manual()
