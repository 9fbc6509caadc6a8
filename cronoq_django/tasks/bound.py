"""Bound: a task with its arguments, and already with the id of its run, so that others can wait for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID

from cronoq_django.models.choices import Condition
from cronoq_django.models.ids import uuid7
from cronoq_django.store.records import run_id


@dataclass(slots=True, eq=False)
class Bound:
    """A run to be. Made by `Task.bind`; a whole graph of them goes in with `enqueue_many`.

    >>> load, check = extract.bind("2026-12"), audit.bind("2026-12")
    >>> enqueue_many([load, check, report.using(after=[load, check]).bind("2026-12")])
    """

    task: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    id: UUID = field(default_factory=uuid7)
    waits_for: dict[UUID, str] | None = None  # the condition by prerequisite, beside the task's own `after`

    def wait_for(self, *prerequisites: Any, on: str = Condition.SUCCESS) -> Self:
        """Wait for these runs as well: results, records, bound tasks or ids. `on`: "success", "failure" or "any"."""
        if on not in Condition.values:
            raise ValueError(f"on must be one of {', '.join(Condition.values)}, not {on!r}")
        self.waits_for = {**(self.waits_for or {}), **{run_id(one): on for one in prerequisites}}
        return self

    @property
    def prerequisites(self) -> dict[UUID, str]:
        """All that it waits for, with the condition of each."""
        own = getattr(self.task, "after", ())
        return {**dict.fromkeys(own, self.task.on), **(self.waits_for or {})} if own else self.waits_for or {}
