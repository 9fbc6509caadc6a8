"""The decision: what becomes of a job's due slots. One pure function; the scheduler knows nothing else about time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Literal

from .errors import ScheduleError
from .misfire import MOST_FIRED, PUNCTUAL, Misfire, choose
from .moment import said, utc
from .overlap import Overlap, admit
from .schedule import Schedule

MOST = 10_000
"""Missed slots are counted so far, then it is "10,000+": other jobs waited while one counted its 90 days of minutes."""
FEW = 10
"""So many overlapping slots are recorded one by one, more of them together."""


_POLICIES = {"misfire": tuple(map(str, Misfire)), "overlap": tuple(map(str, Overlap))}


@dataclass(frozen=True, slots=True)
class Terms:
    """The columns of a job that decide about its slots. Slots at `starts_at` or `ends_at` themselves are the job's."""

    schedule: Schedule
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    misfire: str = Misfire.LATEST
    misfire_window: timedelta | None = None
    misfire_limit: int = 10
    overlap: str = Overlap.SKIP
    concurrency: int = 1

    def __post_init__(self) -> None:
        for field, policies in _POLICIES.items():
            if (value := getattr(self, field)) not in policies:
                raise ScheduleError(f"{field} is one of {', '.join(policies)}, not {value!r}", field=field)
        for field, most in (("misfire_limit", MOST_FIRED), ("concurrency", 2**31)):
            if not 1 <= getattr(self, field) <= most:
                raise ScheduleError(f"{field} must be at least 1, and at most {most:,}", field=field)
        for field in ("starts_at", "ends_at"):
            if (moment := getattr(self, field)) is not None:
                object.__setattr__(self, field, utc(moment, field))


@dataclass(frozen=True, slots=True)
class Skipped:
    """Slots that don't fire, for one row of history: `slot` is the newest of `count` (counted to 10,000)."""

    slot: datetime
    reason: Literal["misfire", "overlap"]
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do: make runs of `fire` and `wait` (oldest first; the latter wait until the job's concurrency has room),
    record `skipped`, come again at `next_slot` (None: job done)."""

    fire: tuple[datetime, ...]
    wait: tuple[datetime, ...]
    skipped: tuple[Skipped, ...]
    next_slot: datetime | None
    missed: int
    explanation: str


def first_slot(terms: Terms, after: datetime) -> datetime | None:
    """The first slot strictly later than `after`, from `starts_at` to `ends_at` (which may be slots), or None."""
    after = utc(after, "after")
    if terms.starts_at is not None and after < terms.starts_at:
        after = terms.starts_at - timedelta.resolution
    slot = terms.schedule.next(after)
    return None if slot is None or (terms.ends_at is not None and slot > terms.ends_at) else slot


def decide(terms: Terms, due: datetime, now: datetime, *, open_runs: int = 0) -> Decision:
    """What becomes of the slots from `due` (the planned one, a slot on trust) to `now`, with `open_runs` unfinished.

    The misfire policy chooses among them, see `misfire`; of the chosen ones the overlap policy may leave some out, see
    `overlap`. Slots noticed within `PUNCTUAL` all fire: a job every 5 seconds noticed 12 seconds late is not late.
    Every slot ends up in `fire`, in `wait` or is counted in `skipped`, exactly once, so that repeating a decision makes
    the same rows again.
    """
    due, now = utc(due, "due"), utc(now, "now")
    if terms.ends_at is not None and terms.ends_at < due:
        return Decision((), (), (), None, 0, f"ended at {said(terms.ends_at)}")
    if now < due:
        return Decision((), (), (), due, 0, f"not due before {said(due)}")
    until = now if terms.ends_at is None else min(now, terms.ends_at)
    following = first_slot(terms, due)
    is_alone = following is None or following > now  # nearly always, and three times as quick
    chosen, newest_missed = choose(
        (due,) if is_alone else _newest_first(terms.schedule, due, until),
        now,
        policy=terms.misfire,
        window=terms.misfire_window,
        limit=terms.misfire_limit,
    )
    fire, wait, overlapping = admit(
        chosen,
        policy=terms.overlap,
        concurrency=terms.concurrency,
        open_runs=open_runs,
        wanted_before=now - PUNCTUAL if terms.misfire == Misfire.ALL else None,
    )
    skipped: list[Skipped] = []
    story: list[str] = []
    missed = 0
    if newest_missed is not None:
        counted = 1 + terms.schedule.count(due, newest_missed, limit=MOST)
        missed = min(counted, MOST)
        story.append(_missed(terms, due, newest_missed, counted))
        skipped.append(Skipped(newest_missed, "misfire", missed, story[0]))
    skipped += _overlapping(terms, overlapping, open_runs + len(fire) + len(wait))
    if fire:
        story.append(_fired(terms, fire, now, missed))
    if wait:
        busy = f"{open_runs + len(fire)} unfinished, concurrency={terms.concurrency} (overlap={terms.overlap})"
        story.append(f"{_slots(len(wait))} made to wait for room: {busy}")
    if overlapping:
        story.append(f"{_slots(len(overlapping))} skipped: {skipped[-1].why}")
    next_slot = following if is_alone else first_slot(terms, now)
    return Decision(tuple(fire), tuple(wait), tuple(skipped), next_slot, missed, "; ".join(story))


def _newest_first(schedule: Schedule, due: datetime, until: datetime) -> Iterator[datetime]:
    # `due` comes from the plan, not from the walk: new tz data may have moved the slots since it was planned.
    yield from takewhile(lambda slot: slot > due, schedule.walk_back(until + timedelta.resolution))
    yield due


def _overlapping(terms: Terms, slots: Sequence[datetime], open_runs: int) -> list[Skipped]:
    why = f"{open_runs} unfinished, concurrency={terms.concurrency} (overlap=skip)"
    if len(slots) > FEW:
        return [Skipped(slots[-1], "overlap", len(slots), why)]
    return [Skipped(slot, "overlap", 1, why) for slot in slots]


def _missed(terms: Terms, oldest: datetime, newest: datetime, counted: int) -> str:
    when = f"at {said(newest)}" if counted == 1 else f"between {said(oldest)} and {said(newest)}"
    return f"{_slots(counted)} missed {when} because the scheduler was down ({_policy(terms)})"


def _fired(terms: Terms, fire: Sequence[datetime], now: datetime, missed: int) -> str:
    what = said(fire[-1]) if len(fire) == 1 else f"{_slots(len(fire))} from {said(fire[0])} to {said(fire[-1])}"
    if now - fire[0] <= PUNCTUAL:
        return f"fired {what}: on time"
    late = f"{(now - fire[0]).total_seconds():,.0f} seconds late"
    return f"fired the newest, {what}: {late}" if missed else f"fired {what}: {late} ({_policy(terms)})"


def _policy(terms: Terms) -> str:
    policy = f"misfire={terms.misfire}"
    if terms.misfire == Misfire.ALL:
        policy += f", misfire_limit={terms.misfire_limit}"
    return policy if terms.misfire_window is None else f"{policy}, misfire_window={terms.misfire_window}"


def _slots(number: int) -> str:
    return f"{MOST:,}+ slots" if number > MOST else f"{number:,} slot{'s' if number != 1 else ''}"
