"""What is done to a run: each act in its transaction, by who may do it. Each says what it did."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from cronoq_django.models.choices import Outcome, Reason, Status
from cronoq_django.models.ids import uuid7
from cronoq_django.store import runs
from cronoq_django.store.runs import Completion, Place

RUN, OWNER = UUID(int=1), UUID(int=2)
CLAIM = -1  # the first owner's; later ones are from the sequence
FIRST_PLACE = Place(0, timezone.now() - timedelta(days=1), UUID(int=0))

Said = tuple[str, int | None]  # what became of the run by it, and of which claim, if it knows


@dataclass
class Act:
    """Something that is done to the run: `act` on a cursor, which says what it did."""

    name: str
    act: Callable[[Any], list[Said]]
    counts: bool | None = None  # an attempt, if it ends one; None: if that had begun
    then: Callable[[Any, list[Said]], list[Said]] | None = None  # in its next transaction, with what it did before


def claim(cursor: Any) -> list[Said]:
    claimed = runs.claim_runs(
        cursor, worker=uuid7(), pool="default", limit=9, lease=timedelta(hours=1), marks=[FIRST_PLACE]
    )
    return [("running", one.claim) for one in claimed]


def renew(cursor: Any) -> list[Said]:
    return [("renewed", claim) for _, claim, _ in runs.renew_leases(cursor, worker=OWNER, lease=timedelta(hours=1))]


def mark(cursor: Any) -> list[Said]:
    return [("begun", claim) for _, claim in runs.mark_started(cursor, [(RUN, CLAIM, timedelta())])]


def ended(cursor: Any, claim: int, outcome: Outcome, status: Status, **fields: Any) -> list[Said]:
    completion = Completion(id=RUN, claim=claim, outcome=outcome, status=status, took=timedelta(1), **fields)
    completed = runs.complete_runs(cursor, [completion])
    return [(str(became), claim) for (_, claim), became in completed.accepted.items()]


def ending(name: str, outcome: Outcome, status: Status, *, counts: bool = True, **fields: Any) -> Act:
    return Act(name, lambda cursor: ended(cursor, CLAIM, outcome, status, counts=counts, **fields), counts=counts)


def succeed_too(cursor: Any, said: list[Said]) -> list[Said]:
    """The next owner does its work."""
    return [one for _, claim in said if claim for one in ended(cursor, claim, Outcome.SUCCEEDED, Status.SUCCEEDED)]


def rescue(cursor: Any) -> list[Said]:
    return [(str(status), None) for status in runs.rescue(cursor, limit=9, now=timezone.now()).values()]


def take_back(cursor: Any) -> list[Said]:
    return [(str(status), None) for status in runs.take_back_from(cursor, OWNER).values()]


def request_cancel(cursor: Any) -> list[Said]:
    return [("asked", None) for _ in runs.request_cancel(cursor, [RUN])]


def cancel_waiting(cursor: Any) -> list[Said]:
    return [("cancelled", None) for _ in runs.cancel_waiting(cursor, ids=[RUN])]


OUTCOMES = {
    act.name: act
    for act in (
        ending("succeed", Outcome.SUCCEEDED, Status.SUCCEEDED),
        ending("fail", Outcome.FAILED, Status.FAILED, reason=Reason.ERROR),
        ending("retry", Outcome.FAILED, Status.QUEUED),
        ending("snooze", Outcome.SNOOZED, Status.QUEUED, counts=False, delay=timedelta(hours=1)),
        ending("release", Outcome.RELEASED, Status.QUEUED, counts=False),
    )
}
OTHERS = {
    act.name: act
    for act in (
        Act("claim", claim),
        Act("claim and succeed", claim, counts=True, then=succeed_too),
        Act("renew", renew),
        Act("mark", mark),
        Act("rescue", rescue),
        Act("take back", take_back),
        Act("request a cancel", request_cancel),
        Act("cancel what waits", cancel_waiting),
    )
}
ACTS = OUTCOMES | OTHERS
