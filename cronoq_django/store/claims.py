"""Claims, on an alias: take a run, keep it, and say what has become of it.

For who executes runs without `cronoq_worker`. The rules are the workers' own: a claim is a token that only the run's
current owner has; it ends with its lease, and whatever is said with an older one changes nothing. What workers call, on
cursors of theirs, is in `store/runs.py`.

    claimed = claim_next_queued("mail", worker=register_worker("mailer", pools={"mail": 1}))
    if claimed:
        renew_run_lease(claimed.id, claimed.claim)
        update_run(claimed.id, claimed.claim, status="succeeded", result=send(*claimed.args))
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

from cronoq_django.conf import conf
from cronoq_django.errors import Stale, Unavailable, translated
from cronoq_django.models import Run
from cronoq_django.models.choices import REASONS, Outcome, Reason, Status
from cronoq_django.models.fields import dump_json, load_json
from cronoq_django.store import clock, runs
from cronoq_django.store.arguments import flag, identifier, items, number, span, text, texts, word
from cronoq_django.store.records import TaskRecord, get_run, record, run_id
from cronoq_django.store.runs import Completed, Completion
from cronoq_django.store.session import alias_of, on_alias
from cronoq_django.store.statements import count, statement

SHORTEST = timedelta(seconds=1)  # lease
MOST_IDS = 10_000  # in one call
LARGEST = 2**63 - 1  # claim
LONGEST_RESULT = 2**28  # characters: more than a statement takes
ENDED = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)  # by their owner
_REASONS = {Status.FAILED.value: Reason.ERROR, Status.CANCELLED.value: Reason.REQUESTED}


def claim_next_queued(
    pool: str = "default",
    *,
    worker: UUID,
    lease: float | timedelta | None = None,
    excluded: Collection[str] = (),
    suspects: bool = True,
    using: str | None = None,
) -> TaskRecord | None:
    """Claim the next run of a pool: the highest priority first, then the longest due. None: there is none to be had.

    `lease`: for how long it is the worker's, seconds or timedelta (default CRONOQ["LEASE"]); `excluded`: scripts that
    it does not take; `suspects`: whether it may be one that was lost with workers before (not, if the worker has one).
    The record's `claim` proves ownership. Within a transaction of the caller the run is owned once that commits.

    Raises TypeError or ValueError, naming the argument; Unavailable.
    """
    asked: dict[str, Any] = {"pool": text("pool", pool, 100), "excluded": texts("excluded", excluded, 500)}
    asked |= _owner(worker, lease, suspects)
    with on_alias(using) as cursor:
        for claimed in runs.claim_runs(cursor, limit=1, **asked):
            return get_run(claimed.id, using=using)
    return None


def claim_run_by_id(
    run: Any, *, worker: UUID, lease: float | timedelta | None = None, suspects: bool = True, using: str | None = None
) -> TaskRecord | None:
    """Claim this run (a record, or an id). None if it can't be had: see `claim_runs_by_ids`."""
    return claim_runs_by_ids([run], worker=worker, lease=lease, suspects=suspects, using=using)[run_id(run)]


def claim_runs_by_ids(
    ids: Iterable[Any],
    *,
    worker: UUID,
    lease: float | timedelta | None = None,
    suspects: bool = True,
    using: str | None = None,
) -> dict[UUID, TaskRecord | None]:
    """Claim these runs (records or ids, 10,000 at most) in one round trip; {id: its record, or None}, in their order.

    None for one that is not there, not queued, of a paused pool, past its deadline, in somebody else's hands, or a
    second suspect: the rules and the other arguments are those of `claim_next_queued`.

    Raises TypeError or ValueError, naming the argument; Unavailable. Nothing is claimed then.
    """
    wanted = list(dict.fromkeys(run_id(one) for one in items("ids", ids)))
    number("the number of ids", len(wanted), 0, MOST_IDS)
    asked = {"ids": wanted, "now": clock.frozen, **_owner(worker, lease, suspects)}
    with translated():
        rows = list(Run.objects.using(alias_of(using)).raw(statement("claim_runs_by_ids"), asked))
    claimed = {row.pk: record(row) for row in rows}
    return {one: claimed.get(one) for one in wanted}


def renew_run_lease(
    run: Any, claim: int, *, lease: float | timedelta | None = None, using: str | None = None
) -> TaskRecord:
    """Make the lease of a claimed run last for `lease` from now. The record says until when, and in
    `cancel_requested_at` whether somebody wants it to be cancelled: then end it soon, as "cancelled".

    Raises NotFound; Stale if the claim is not the current one; Unavailable if somebody has the row: again, soon.
    """
    asked = {"id": run_id(run), "claim": _claim(claim), "lease": _lease(lease)}
    with on_alias(using) as cursor:
        renewed = count(cursor, "renew_lease", **asked, now=None)
        found = get_run(run, using=using)
        if not renewed:
            _refuse(found, claim)
        return found


def update_run(
    run: Any,
    claim: int,
    *,
    status: str,
    reason: str = "",
    result: Any = None,
    error: str = "",
    delay: float | timedelta = 0,
    counts: bool = True,
    using: str | None = None,
) -> TaskRecord:
    """Say what has become of a claimed run; the run as it is now.

    running    it has begun: from now on an attempt that is lost counts
    succeeded  with its `result`, a JSON value
    failed     for good, with an `error` and a `reason` (default "error")
    cancelled  with a `reason` (default "requested")
    queued     another attempt, `delay` (seconds or timedelta) from now; failed, if this was the last one. Not `counts`:
               this was no attempt, the run is given back, or put off

    A requested cancel wins over everything but success. What waits for the run is seen to.

    >>> update_run(claimed.id, claimed.claim, status="queued", error="the server is busy", delay=60)

    Raises NotFound; Stale if the claim is not the current one; Unavailable if somebody has the row: again, soon;
    TypeError or ValueError, naming the argument. Nothing is written then.
    """
    word("status", status, (Status.RUNNING, Status.QUEUED, *ENDED))
    word("reason", reason, ("", *REASONS.get(Status(status), ())))
    if status == Status.RUNNING and (result, error) != (None, ""):
        raise ValueError("result and error are of a run that is not running any more")
    id_, key = run_id(run), (run_id(run), _claim(claim))
    with on_alias(using) as cursor:
        before = get_run(id_, using=using)
        if status == Status.RUNNING:
            is_marked = before.claim == claim and before.started_at is not None
            if not is_marked and not runs.mark_started(cursor, [(*key, timedelta())]):
                _refuse(before, claim)
        else:
            if status == Status.QUEUED and counts and before.attempts + 1 >= before.max_attempts:
                status, delay = Status.FAILED, 0
            ended = Completion(
                id=id_,
                claim=claim,
                outcome=_outcome(status, reason, is_put_off=bool(delay), counts=counts),
                status=Status(status),
                reason=reason or _REASONS.get(status, ""),
                result=None if result is None else dump_json(result, "result"),
                error=error,
                counts=counts,
                delay=span("delay", delay),
                took=timedelta() if counts or delay else None,
            )
            if key not in runs.complete_runs(cursor, [_checked(ended)]).accepted:
                _refuse(before, claim)
        return get_run(id_, using=using)


def complete_runs(completions: Sequence[Completion], *, using: str | None = None) -> Completed:
    """Write the outcomes of many attempts (`Completion`, from `store.runs`) in one transaction.

    Of each the answer says, by (id, claim): `accepted`, with the state that the run came to; `busy`, to be sent again;
    or neither: it is stale. What waits for the runs is seen to.

    Raises TypeError or ValueError, naming the argument; Unavailable. Nothing is written then.
    """
    checked = [_checked(one) for one in items("completions", completions)]
    if len({one.id for one in checked}) < len(checked):
        raise ValueError("completions: two of them are of the same run")
    with on_alias(using) as cursor:
        return runs.complete_runs(cursor, checked)


def _owner(worker: UUID, lease: float | timedelta | None, suspects: bool) -> dict[str, Any]:
    suspects = flag("suspects", suspects)
    return {"worker": identifier("worker", worker), "lease": _lease(lease), "suspects": suspects}


def _lease(lease: float | timedelta | None) -> timedelta:
    return conf().lease if lease is None else span("lease", lease, SHORTEST)


def _claim(claim: int) -> int:
    return number("claim", claim, 1, LARGEST)


def _refuse(found: TaskRecord, claim: int) -> NoReturn:
    if found.claim == claim:
        raise Unavailable(f"somebody has the row of the run {found.id} just now")
    owned = f"it has {found.claim}" if found.claim else f"the run is {found.status}"
    raise Stale(f"claim: {claim} is not the current one of the run {found.id}: {owned}")


def _outcome(status: str, reason: str, *, is_put_off: bool, counts: bool) -> Outcome:
    match status:
        case Status.QUEUED if not counts:
            return Outcome.SNOOZED if is_put_off else Outcome.RELEASED
        case Status.SUCCEEDED:
            return Outcome.SUCCEEDED
        case Status.CANCELLED:
            return Outcome.CANCELLED
        case _:
            return Outcome.TIMED_OUT if reason == Reason.TIMEOUT else Outcome.FAILED


def _checked(one: Completion) -> Completion:
    """The completion, if the row can take it."""
    if not isinstance(one, Completion):
        raise TypeError(f"completions must be Completion objects, not {one!r}")
    identifier("id", one.id)
    flag("counts", one.counts)
    _claim(one.claim)
    word("outcome", one.outcome, Outcome.values)
    word("status", one.status, (Status.QUEUED, *ENDED))
    word("reason", one.reason, REASONS.get(one.status, ("",)))
    for name in ("error", "exception_class", "traceback"):
        if not isinstance(getattr(one, name), str):
            raise TypeError(f"{name} must be a text, not {getattr(one, name)!r}")
    if one.result is not None:
        if one.status != Status.SUCCEEDED:
            raise ValueError("result: only a run that succeeds has one")
        stored = text("result", one.result, LONGEST_RESULT)
        try:
            dump_json(load_json(stored))  # NaN is read, but is no JSON
        except ValueError as error:
            raise ValueError(f"result must be JSON text: {error}") from None
    delay = span("delay", one.delay)
    if delay and one.status != Status.QUEUED:
        raise ValueError("delay: only a run that is queued again has one")
    return replace(one, delay=delay, took=None if one.took is None else span("took", one.took))
