"""A worker's round: one transaction that writes what has come of its runs, and claims the next.

All that does not depend on an answer goes out together, and the commit follows it: two round trips, or three if others
wait for a run that has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from cronoq_django.store.runs import (
    MOST_SETTLED,
    ClaimedRun,
    Completed,
    Completion,
    Detail,
    Key,
    begun_of,
    claimed,
    outcomes_of,
    said_in,
)
from cronoq_django.store.session import Session, pipelined


@dataclass(slots=True)
class Round:
    """What became of a round, now that it has committed."""

    completed: Completed = field(default_factory=Completed)
    marked: set[Key] = field(default_factory=set)
    claimed: list[list[ClaimedRun]] = field(default_factory=list)  # by claim


def write_round(
    session: Session,
    *,
    details: Sequence[Detail],
    completions: Sequence[Completion],
    begun: Sequence[tuple[*Key, timedelta]],
    claims: Sequence[dict[str, Any]],
) -> Round:
    """Keep details, write outcomes, note which runs began so long ago, and claim. Raises Unavailable."""
    done = Round()
    with pipelined(session) as ask:
        if details:
            ask("write_details", details=said_in(details))
        if completions:
            outcomes = ask("complete_runs", completions=outcomes_of(completions), now=None)
            ended = [one.id for one in completions]
            dependants = ask("lock_dependants", prerequisites=ended, limit=MOST_SETTLED, now=None)
        if begun:
            marked = ask("mark_started", **begun_of(begun))
        answers = [ask("claim_runs", **claim, now=None) for claim in claims]
        if completions:
            done.completed = Completed.read(outcomes())
            if waiting := [row[0] for row in dependants()]:
                ask("settle_runs", prerequisites=done.completed.ended, ids=waiting, now=None)
        if begun:
            done.marked = {(row[0], row[1]) for row in marked()}
        done.claimed = [claimed(answer()) for answer in answers]
    return done
