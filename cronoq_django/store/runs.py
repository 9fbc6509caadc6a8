"""Runs: insert, claim, renew, complete, take back, settle, cancel: each on the caller's cursor, in its transaction."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from cronoq_django.models.choices import TERMINAL, Outcome, Reason, Status, Trigger
from cronoq_django.models.fields import TEXT_LIMIT, clean_text
from cronoq_django.models.ids import uuid7
from cronoq_django.store.leadership import FencedTransaction
from cronoq_django.store.statements import Cursor, as_json, count, run


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to insert. `args`, `kwargs`, `backoff`, `tags` are JSON text, as from `dump_json`; `due_at` None is now.

    Optional ones are None, not empty: a column that no run of a batch has costs nothing.
    """

    id: UUID = field(default_factory=uuid7)
    trigger: str = Trigger.ENQUEUE
    script: str
    args: str = "[]"
    kwargs: str = "{}"
    pool: str = "default"
    priority: int = 0
    due_at: datetime | None = None
    expires_at: datetime | None = None
    timeout: timedelta | None = None
    max_attempts: int = 3
    backoff: str | None = None
    job_id: UUID | None = None
    job_name: str | None = None
    job_revision: int | None = None
    actor: str | None = None
    parent_id: UUID | None = None
    root_id: UUID | None = None
    retry_of_id: UUID | None = None
    tags: str | None = None
    key: str | None = None
    key_hash: bytes | None = None
    key_for: timedelta | None = None
    waits: bool | None = None  # for prerequisites


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that a worker owns: `id` and `claim` together prove it. `args`, `kwargs`, `backoff` are JSON text."""

    id: UUID
    claim: int
    script: str
    args: str
    kwargs: str
    pool: str
    priority: int
    due_at: datetime
    attempts: int
    max_attempts: int
    backoff: str | None
    timeout: timedelta | None
    job_name: str
    scheduled_for: datetime | None
    created_at: datetime
    root_id: UUID | None
    is_suspect: bool = False  # it may be what killed its workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """How an attempt ended, and what becomes of its run.

    `status` queued with a `delay` is a retry or a snooze; `took` None means that it never began; `counts` says whether
    the attempt is counted.
    """

    id: UUID
    claim: int
    outcome: Outcome
    status: Status
    reason: Reason | str = ""
    result: str | None = None
    error: str = ""
    exception_class: str = ""
    traceback: str = ""
    counts: bool = True
    delay: timedelta = timedelta()
    took: timedelta | None = None


def insert_runs(cursor: Cursor, runs: Sequence[NewRun], *, now: datetime | None = None) -> dict[UUID, datetime]:
    """Insert runs in the caller's transaction, in one statement: the new ones' ids, and their creation."""
    if not runs:
        return {}
    text = as_json(runs, script=500, pool=100, job_name=200, actor=200, key=TEXT_LIMIT)
    created_at, only, _ = run(cursor, "insert_runs", runs=text, count=len(runs), now=now)[0]
    return dict.fromkeys([one.id for one in runs] if only is None else only, created_at)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a run stands in its pool's queue, among those of its priority."""

    priority: int
    due_at: datetime
    id: UUID


def look_for_runs(cursor: Cursor, pool: str) -> list[Place]:
    """Where the queue of a pool begins: the place of the first run of each priority, the most urgent first."""
    return [Place(*row) for row in run(cursor, "look_for_runs", pool=pool)]


def claim_runs(
    cursor: Cursor, *, pool: str, marks: Sequence[Place] | None = None, now: datetime | None = None, **options: Any
) -> list[ClaimedRun]:
    """Claim up to `limit` queued runs of a pool for a `worker` under a `lease`, the most urgent first.

    None of `excluded` scripts; at most one suspect, or none, if not `suspects`. What is beyond `free` (default: the
    limit) will not begin at once. `marks` say where to look (the most urgent first); without them it looks everywhere.
    """
    marks = look_for_runs(cursor, pool) if marks is None else marks
    return claimed(run(cursor, "claim_runs", **claim_of(pool=pool, marks=marks, **options), now=now))


def claim_of(
    *,
    worker: UUID,
    pool: str,
    limit: int,
    lease: timedelta,
    marks: Sequence[Place],
    free: int | None = None,
    excluded: Collection[str] = (),
    suspects: bool = True,
) -> dict[str, Any]:
    """What the statement that claims is told."""
    return {
        "worker": worker,
        "pool": pool,
        "limit": limit,
        "free": limit if free is None else free,
        "lease": lease,
        "excluded": list(excluded),
        "suspects": suspects,
        "priorities": [mark.priority for mark in marks],
        "dues": [mark.due_at for mark in marks],
        "ids": [mark.id for mark in marks],
    }


def claimed(rows: list[tuple[Any, ...]]) -> list[ClaimedRun]:
    """The rows of a claim, in their order in the queue."""
    return sorted((ClaimedRun(*row) for row in rows), key=lambda one: (-one.priority, one.due_at, one.id))


MOST_ATTEMPTS = 10**9  # as many as the table counts
MOST_SETTLED = 500  # waiting runs in one transaction: 300,000 of them took longer than a worker's statements may
Key = tuple[UUID, int]  # a run and the claim on it


@dataclass(frozen=True, slots=True)
class Detail:
    """What a run has said of itself."""

    id: UUID
    claim: int
    progress_done: int | None
    progress_total: int | None
    message: str
    log: str


def write_details(cursor: Cursor, details: Sequence[Detail]) -> None:
    """Keep what runs say of themselves. A stale claim writes nothing. In a transaction of its own, or before the end of
    the runs, with which their claims are gone."""
    if details:
        count(cursor, "write_details", details=said_in(details))


def said_in(details: Sequence[Detail]) -> str:
    """What the statement that keeps details is told."""
    return as_json(details, message=2000, log=TEXT_LIMIT)


def mark_started(cursor: Cursor, begun: Sequence[tuple[UUID, int, timedelta]]) -> set[Key]:
    """Note that claimed runs (id, claim) began so long ago; those noted. The rest are busy, or not owned any more."""
    if not begun:
        return set()
    return {(row[0], row[1]) for row in run(cursor, "mark_started", **begun_of(begun))}


def begun_of(begun: Sequence[tuple[UUID, int, timedelta]]) -> dict[str, Any]:
    """What the statement that marks is told."""
    ids, claims, ago = zip(*begun, strict=True)
    return {"ids": list(ids), "claims": list(claims), "ago": list(ago)}


@dataclass(frozen=True, slots=True)
class Completed:
    """What became of a batch of outcomes: the states of the runs whose outcome was accepted, and which are busy."""

    accepted: dict[Key, Status] = field(default_factory=dict)
    busy: set[Key] = field(default_factory=set)

    @classmethod
    def read(cls, rows: list[tuple[Any, ...]]) -> Self:
        """From the rows of the statement that completes."""
        return cls(
            {(row[0], row[1]): Status(row[2]) for row in rows if row[2] is not None},
            {(row[0], row[1]) for row in rows if row[2] is None},
        )

    @property
    def ended(self) -> list[UUID]:
        """The runs that have ended for good."""
        return [id_ for (id_, _), status in self.accepted.items() if status in TERMINAL]


def complete_runs(cursor: Cursor, completions: Sequence[Completion], *, now: datetime | None = None) -> Completed:
    """Write outcomes of attempts. A stale claim changes nothing; a busy run's outcome is to be sent again."""
    if not completions:
        return Completed()
    completed = Completed.read(run(cursor, "complete_runs", completions=outcomes_of(completions), now=now))
    settle_after(cursor, completed.ended, now=now)
    return completed


def outcomes_of(completions: Sequence[Completion]) -> str:
    """What the statement that completes is told."""
    return as_json(completions, error=TEXT_LIMIT, exception_class=500, traceback=TEXT_LIMIT)


def renew_leases(
    cursor: Cursor, *, worker: UUID, lease: timedelta, now: datetime | None = None
) -> list[tuple[UUID, int, bool]]:
    """Renew the leases of all that a worker runs: (id, claim, whether a cancel was requested) of each."""
    rows = run(cursor, "renew_leases", worker=worker, lease=lease, now=now)
    return [(row[0], row[1], row[2] is not None) for row in rows]


def owned_runs(cursor: Cursor, worker: UUID) -> list[ClaimedRun]:
    """What a worker owns, as the database sees it."""
    return claimed(run(cursor, "owned_runs", worker=worker))


def take_back_from(
    cursor: Cursor, worker: UUID, *, begun: Collection[int] | None = None, why: str = ""
) -> dict[UUID, Status]:
    """Take back everything that a dead worker ran. Only its own supervisor may say that it is dead.

    `begun`: the claims whose attempts are lost; the others go back uncharged, and say `why`. Without it the rows tell.
    """
    dead: dict[str, Any] = {"worker": worker, "begun": None if begun is None else list(begun), "why": clean_text(why)}
    taken_back: dict[UUID, Status] = {}
    while rows := run(cursor, "take_back_runs", **dead, limit=1000, lease=None, now=None):
        taken_back |= _taken_back(cursor, rows)
    return taken_back


def settle_after(cursor: Cursor, ended: Sequence[UUID], *, now: datetime | None = None) -> int:
    """See to what waits for runs that have ended, or end in this transaction; how many were looked at."""
    if not ended:
        return 0
    rows = run(cursor, "lock_dependants", prerequisites=ended, limit=MOST_SETTLED, now=now)
    if rows:
        run(cursor, "settle_runs", prerequisites=ended, ids=[row[0] for row in rows], now=now)
    return len(rows)


def settle(tx: Cursor, *, limit: int, now: datetime | None = None) -> int:
    """See to what waits for the prerequisites of the outbox; how many of these, but for those that are put back; at
    least `limit` if there is more to do at once."""
    taken, again, ended = run(tx, "take_unsettled", limit=limit)[0]
    is_full = settle_after(tx, ended, now=now) >= MOST_SETTLED
    return max(int(taken - again), limit if is_full else 0)


def expire(tx: Cursor, *, limit: int, now: datetime | None = None) -> list[UUID]:
    """Fail runs that were not begun by their deadline, their ids; and free the keys whose time is over."""
    ended = _ended(tx, "expire_runs", limit=limit, now=now)
    run(tx, "free_keys", ids=None, limit=limit, now=now)
    return ended


def _ended(cursor: Cursor, name: str, /, **params: Any) -> list[UUID]:
    """Execute a statement that ends waiting runs; their ids. What waits for those is the leader's: the caller may keep
    its transaction open, and must not wait for other runs while it holds some."""
    ended = [row[0] for row in run(cursor, name, **params)]
    if ended:
        run(cursor, "leave_dependants", prerequisites=ended)
    return ended


def rescue(
    tx: FencedTransaction, *, limit: int, lease: timedelta = timedelta(), now: datetime | None = None
) -> dict[UUID, Status]:
    """Take back runs whose lease ran out: queued again, or failed as lost if that was the last attempt. But not from
    workers that were heard of within the last `lease`: somebody held the row, and it could not be renewed."""
    moment = now or tx.now
    rows = run(tx, "take_back_runs", worker=None, begun=None, why="", limit=limit, lease=lease, now=moment)
    return _taken_back(tx, rows)


def _taken_back(cursor: Cursor, rows: list[tuple[Any, ...]]) -> dict[UUID, Status]:
    taken_back = {row[0]: Status(row[1]) for row in rows}
    settle_after(cursor, [id_ for id_, status in taken_back.items() if status in TERMINAL])
    return taken_back


def stage(tx: FencedTransaction, *, limit: int, now: datetime | None = None) -> int:
    """Queue the scheduled runs that are due; how many."""
    return int(run(tx, "stage_runs", limit=limit, now=now or tx.now)[0][0])


def admit(tx: FencedTransaction, *, limit: int) -> int:
    """Queue or schedule the blocked slot runs whose job has room; how many."""
    return int(run(tx, "admit_runs", limit=limit, now=None)[0][0])


def quarantine(tx: FencedTransaction, *, limit: int, now: datetime | None = None) -> list[UUID]:
    """End waiting runs whose arguments can't be decoded; their ids."""
    error = "The arguments must be a JSON list, and the named ones a JSON object."
    return _ended(tx, "quarantine_runs", error=error, limit=limit, now=now)


def cancel_waiting(
    cursor: Cursor,
    *,
    ids: Sequence[UUID] = (),
    job: UUID | None = None,
    reason: Reason = Reason.REQUESTED,
    error: str = "",
    limit: int = 1000,
    now: datetime | None = None,
) -> list[UUID]:
    """Cancel those of the runs (by id, or all of a job) that wait; their ids."""
    return _ended(
        cursor, "cancel_runs", ids=list(ids), job=job, reason=reason, error=clean_text(error), limit=limit, now=now
    )


def any_waiting(cursor: Cursor, job: UUID) -> bool:
    """Whether a run of the job waits."""
    return bool(run(cursor, "any_waiting", job=job)[0][0])


def request_cancel(cursor: Cursor, ids: Sequence[UUID], *, now: datetime | None = None) -> list[UUID]:
    """Ask that those of the runs that run be cancelled; their ids. Not in one transaction with `cancel_waiting`."""
    return [row[0] for row in run(cursor, "request_cancel", ids=list(ids), now=now)]


def prune(cursor: Cursor, *, status: Status, since: datetime | None, before: datetime, limit: int) -> int:
    """Remove runs that ended in `status` from `since` to `before`; how many were looked at."""
    ids = [row[0] for row in run(cursor, "old_runs", status=status, since=since, before=before, limit=limit)]
    if ids:
        count(cursor, "prune_runs", ids=ids)
    return len(ids)
