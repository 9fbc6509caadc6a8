"""Plan: find the next slot of each job that changed, and clear up after deleted ones.

A changed job has a row in the outbox. Its next slot is the first one after the change, stored together with the
schedule revision it was computed for: `fire` acts on no other. So an edit never fires a slot that passed before it,
whatever way it was written, and a slot of the old schedule never fires after it.
"""

import logging
from datetime import datetime
from typing import Any

from cronoq_django.errors import CronoqError
from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages import decode
from cronoq_django.models.choices import Kind, Reason
from cronoq_django.models.job import terms_of
from cronoq_django.schedules import ScheduleError, first_slot
from cronoq_django.store import runs, slots
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")


class Plan(Stage):
    """The outbox of job changes."""

    name = "plan"
    prompt = True

    def step(self, tx: FencedTransaction) -> int:
        changed = slots.take_changes(tx, limit=self.batch)
        free = slots.lock_states(tx, changed)
        rows, known = [], set()
        for row in slots.jobs_to_plan(tx, changed):
            known.add(row["job_id"])
            if row["is_planned"] and row["job_id"] not in free:
                slots.add_change(tx, row["job_id"])  # somebody holds its state: later
            else:
                rows.append(row)
        plans = [_plan_alone(tx, row) for row in rows]
        for row, planned in zip(rows, plans, strict=True):
            if planned.error:
                logger.error("Job %s is set aside: %s", row["name"], planned.error)
        slots.plan_states(tx, plans)
        for job in set(changed) - known:
            cancelled = runs.cancel_waiting(
                tx, job=job, reason=Reason.JOB_DELETED, error="The job was deleted.", limit=self.batch
            )
            if len(cancelled) == self.batch or runs.any_waiting(tx, job):
                slots.add_change(tx, job)  # there are more, or somebody holds one
        return len(changed)


def _plan_alone(tx: FencedTransaction, row: dict[str, Any]) -> slots.Plan:
    """Whatever is wrong with a job is that job's trouble."""
    try:
        return plan(row, decode.problem(tx, row))
    except CronoqError:
        raise
    except Exception as error:
        logger.exception("Job %s could not be planned.", row["name"])
        return _Planned(row).set_aside(f"{type(error).__name__}: {error}")


def plan(row: dict[str, Any], problem: str = "") -> slots.Plan:
    """The next slot of a job as `jobs_to_plan` reads it, or why it has none. `problem`: what `decode` says of it."""
    planned = _Planned(row)
    if not row["enabled"]:
        return planned.without("Paused.")
    try:
        terms = terms_of(row)
    except ScheduleError as error:
        return planned.set_aside(f"{error.field}: {error}")
    if problem:
        return planned.set_aside(problem)
    if row["kind"] == Kind.MANUAL:
        return planned.without("Runs only by hand.")
    if row["kind"] == Kind.ONCE:
        return _plan_once(row, planned)
    # Not what has fired already, since a change that was committed late may have begun before; and nothing of the time
    # for which the job was set aside.
    after = [row["schedule_changed_at"], row["last_slot"], row["now"] if row["error"] else None]
    return planned.at(first_slot(terms, max(moment for moment in after if moment is not None)))


def _plan_once(row: dict[str, Any], planned: "_Planned") -> slots.Plan:
    """A one-off is due at its time even if that had passed when its creation was seen, but only once, and not if it
    passed while the job was disabled or had another time."""
    run_at, changed_at = row["run_at"], row["schedule_changed_at"]
    if row["last_slot"] == run_at:
        return planned.without("Ran.", completed=True)
    is_new, is_pending = row["schedule_revision"] == 1, row["next_run_at"] == run_at
    if run_at > changed_at or is_new or is_pending:
        return planned.at(run_at)
    return planned.without(
        "Its time passed while it was disabled, or before it was given that time: not run.", completed=True
    )


class _Planned:
    """The forms that a plan can take."""

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = row

    def at(self, slot: datetime | None) -> slots.Plan:
        if slot is None:
            return self.without("No slot is left.", completed=True)
        return self._plan(next_run_at=slot, explanation=f"Next at {slot:%Y-%m-%d %H:%M:%S} UTC.")

    def without(self, explanation: str, *, completed: bool = False) -> slots.Plan:
        return self._plan(explanation=explanation, completed=completed)

    def set_aside(self, error: str) -> slots.Plan:
        return self._plan(error=error)

    def _plan(self, **fields: Any) -> slots.Plan:
        return slots.Plan(job_id=self._row["job_id"], planned_revision=self._row["schedule_revision"], **fields)
