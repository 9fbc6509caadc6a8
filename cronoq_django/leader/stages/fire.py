"""Fire: turn due slots into runs.

The states of due jobs are locked, the jobs are read without a lock (somebody's open edit must not stop its firing), the
runs are inserted and the states written back, all in one fenced transaction a batch. A slot that has its run already,
from a predecessor whose commit was not heard of, stays as it is.

One job that cannot be decided or inserted is set aside with its reason; the rest of its batch fires.
"""

import logging
from datetime import datetime
from typing import Any

from cronoq_django.errors import CronoqError, Unavailable
from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages import decode
from cronoq_django.models.choices import Status
from cronoq_django.models.job import terms_of
from cronoq_django.schedules import Decision, ScheduleError, decide, jittered
from cronoq_django.store import slots
from cronoq_django.store.leadership import FencedTransaction

logger = logging.getLogger("cronoq.leader")

LARGEST = 8_000_000  # bytes of arguments in one transaction

Firing = tuple[slots.Fired, list[slots.SlotRun]]


class Fire(Stage):
    """The due slots of all jobs, the longest due first."""

    name = "fire"
    prompt = True
    batch = 1000

    def step(self, tx: FencedTransaction) -> int:
        due = slots.due_jobs(tx, limit=self.batch)
        firings: list[Firing] = []
        size = 0
        for row in self.in_time(due):
            firings.append(fire(row, decode.problem(tx, row)))
            size += row["size"] * len(firings[-1][1])
            if size > LARGEST:
                break
        try:
            with tx.savepoint():
                self._write(tx, firings)
        except Exception as error:
            if len(firings) == 1 and isinstance(error, CronoqError):
                raise
            self._write_one_by_one(tx, firings)
        for row, (state, _) in zip(due, firings, strict=False):
            if state.error:
                logger.error("Job %s is set aside: %s", row["name"], state.error)
        return len(due) if len(firings) == len(due) else self.batch

    def _write(self, tx: FencedTransaction, firings: list[Firing]) -> None:
        slots.insert_slot_runs(tx, [run for _, made in firings for run in made])
        slots.write_states(tx, [state for state, _ in firings])

    def _write_one_by_one(self, tx: FencedTransaction, firings: list[Firing]) -> None:
        """Something in the batch can't be stored, or waits for somebody: one job's trouble, and not the others'."""
        for state, made in firings:
            try:
                with tx.savepoint():
                    self._write(tx, [(state, made)])
            except Unavailable as error:  # later; if the session is lost, the next one says so
                self.trouble = f"job {state.job_id} is put off: {error}"
                logger.warning("Job %s is put off: %s", state.job_id, error)
            except CronoqError:
                raise
            except Exception as error:
                self.trouble = f"job {state.job_id}: {error}"
                logger.exception("Job %s could not be fired: set aside.", state.job_id)
                slots.write_states(tx, [slots.Fired(job_id=state.job_id, next_run_at=None, error=str(error))])


def fire(row: dict[str, Any], problem: str = "") -> Firing:
    """What becomes of one due job: its state, and the runs of its slots. `problem`: what `decode` says of it."""
    job_id, due, now = row["job_id"], row["next_run_at"], row["now"]
    if problem:
        return slots.Fired(job_id=job_id, next_run_at=None, error=problem), []
    try:
        decision = decide(terms_of(row), due, now, open_runs=row["open_runs"])
    except ScheduleError as error:
        return slots.Fired(job_id=job_id, next_run_at=None, error=f"{error.field}: {error}"), []
    except Exception as error:  # whatever is wrong with a job is that job's trouble
        logger.exception("Job %s could not be decided.", row["name"])
        return slots.Fired(job_id=job_id, next_run_at=None, error=f"{type(error).__name__}: {error}"), []
    return (
        slots.Fired(
            job_id=job_id,
            next_run_at=decision.next_slot,
            last_slot=_newest(decision),
            completed=decision.next_slot is None,
            missed=decision.missed,
            skipped=sum(skipped.count for skipped in decision.skipped if skipped.reason == "overlap"),
            explanation=decision.explanation,
        ),
        _runs(row, decision),
    )


def _newest(decision: Decision) -> datetime | None:
    slots = [*decision.fire, *decision.wait, *(skipped.slot for skipped in decision.skipped)]
    return max(slots, default=None)


def _runs(row: dict[str, Any], decision: Decision) -> list[slots.SlotRun]:
    job = row["job_id"]
    made = [
        slots.SlotRun(job_id=job, scheduled_for=slot, due_at=jittered(job, slot, row["jitter"]), status=status)
        for status, chosen in ((None, decision.fire), (Status.BLOCKED, decision.wait))
        for slot in chosen
    ]
    skipped = [
        slots.SlotRun(
            job_id=job, scheduled_for=one.slot, due_at=one.slot, status=Status.SKIPPED, reason=one.reason, error=one.why
        )
        for one in decision.skipped
    ]
    return [*made, *skipped]
