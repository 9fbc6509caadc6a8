"""Slots: what the leader knows of due jobs, and the writing back. All of it fenced."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cronoq_django.errors import Fenced
from cronoq_django.models.fields import TEXT_LIMIT
from cronoq_django.models.ids import uuid7
from cronoq_django.registry import DeclaredJob
from cronoq_django.store.leadership import FencedTransaction, Term, successor
from cronoq_django.store.statements import Cursor, as_json, count, records, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next slot of a job, for one schedule revision; or why there is none."""

    job_id: UUID
    planned_revision: int
    next_run_at: datetime | None = None
    completed: bool = False
    explanation: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What became of a job's due slots."""

    job_id: UUID
    next_run_at: datetime | None
    last_slot: datetime | None = None
    completed: bool = False
    missed: int = 0
    skipped: int = 0
    explanation: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRun:
    """A run of a slot: without `status` by `due_at`; else `blocked`, or `skipped` with its reason."""

    id: UUID = field(default_factory=uuid7)
    job_id: UUID
    scheduled_for: datetime
    due_at: datetime
    status: str | None = None
    reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class KnownScript:
    """A script as a process knows it."""

    name: str
    signature: str
    signature_hash: str
    doc: str


def due_jobs(tx: FencedTransaction, *, limit: int, now: datetime | None = None) -> list[dict[str, Any]]:
    """Lock the states of due jobs, and read their jobs."""
    return records(tx, "due_jobs", limit=limit, now=now or tx.now)


def insert_slot_runs(tx: FencedTransaction, made: Sequence[SlotRun]) -> None:
    """Make the runs of slots, with what their jobs say now."""
    if made:
        run(tx, "insert_slot_runs", epoch=tx.term.epoch, now=None, slots=as_json(made, error=2000))


def write_states(tx: FencedTransaction, fired: Sequence[Fired]) -> None:
    """Write back what firing decided, for states that this transaction has locked."""
    if fired:
        count(tx, "write_states", epoch=tx.term.epoch, states=as_json(fired, explanation=2000, error=2000))


def take_changes(tx: FencedTransaction, *, limit: int) -> list[UUID]:
    """Take changed and deleted jobs out of the outbox, each once."""
    return sorted({row[0] for row in run(tx, "take_changes", limit=limit)})


def add_change(tx: FencedTransaction, job: UUID) -> None:
    """Put a job into the outbox again."""
    count(tx, "add_change", job=job)


def add_missing_changes(tx: FencedTransaction) -> int:
    """Put jobs without a plan, or with one of another revision, into the outbox; how many."""
    return count(tx, "add_missing_changes")


def plan_known_again(tx: FencedTransaction, *, known: Sequence[str], silence: timedelta) -> int:
    """Put jobs that were set aside for their script into the outbox, if the script is `known` here, or to a worker that
    was heard of within `silence`; how many."""
    return count(tx, "plan_known_again", known=list(known), silence=silence)


def lock_states(tx: FencedTransaction, ids: Sequence[UUID]) -> set[UUID]:
    """Lock the states of these jobs; those that nobody else holds."""
    return {row[0] for row in run(tx, "lock_states", ids=list(ids))}


def jobs_to_plan(tx: FencedTransaction, ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """The jobs of these ids that exist, with what their states say."""
    return records(tx, "jobs_to_plan", ids=list(ids), now=None)


def plan_states(tx: FencedTransaction, plans: Sequence[Plan]) -> None:
    """Store the next slots."""
    if plans:
        count(
            tx,
            "plan_states",
            epoch=tx.term.epoch,
            states=as_json(sorted(plans, key=lambda plan: plan.job_id), explanation=2000, error=2000),
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What a leader has to do: the prompt stages that have work, and seconds until there is more (None: never)."""

    stages: frozenset[str]
    seconds: float | None


def look(cursor: Cursor, term: Term) -> Look:
    """Look whether there is work; reads only, so without a fence. Raises Fenced if the term is over."""
    leads, plan, fire, stage, admit, settle, expire, seconds = run(cursor, "look", epoch=term.epoch, term=term.id)[0]
    if not leads:
        raise Fenced(f"epoch {term.epoch} is over: {successor(cursor, term)}")
    found = {"plan": plan, "fire": fire, "stage": stage, "admit": admit, "settle": settle, "expire": expire}
    return Look(frozenset(name for name, has_work in found.items() if has_work), seconds)


def sync_job(tx: FencedTransaction, declared: DeclaredJob, *, declared_at: datetime) -> bool:
    """Write a job of the code, unless it is so already, the admin adopted it, or newer code declares it; whether."""
    columns = {"name": declared.name, "declared_at": declared_at, **declared.columns}
    return bool(run(tx, "add_declared_job", id=uuid7(), **columns) or run(tx, "update_declared_job", **columns))


def disable_gone_jobs(tx: FencedTransaction, *, silence: timedelta) -> list[str]:
    """Disable the jobs of the code that no live coordinator declares; their names."""
    return [row[0] for row in run(tx, "disable_gone_jobs", silence=silence)]


def sync_scripts(tx: FencedTransaction, scripts: Sequence[KnownScript]) -> int:
    """Record the scripts of this process; how many were new or changed."""
    return count(tx, "sync_scripts", scripts=as_json(scripts, doc=TEXT_LIMIT)) if scripts else 0


def sync_pools(tx: FencedTransaction, names: Sequence[str]) -> int:
    """Make rows for the pools that code and jobs name; how many were new."""
    return count(tx, "sync_pools", names=list(names))


def replaced_runs(tx: FencedTransaction, *, limit: int) -> list[tuple[UUID, str]]:
    """The open runs that are to end because a newer slot of their job replaces them, with their status."""
    return [(row[0], row[1]) for row in run(tx, "replaced_runs", limit=limit)]


def pause_failing(tx: FencedTransaction, *, limit: int) -> list[str]:
    """Disable the jobs with pause_on_failure of which a run has failed; their names."""
    return [row[0] for row in run(tx, "pause_failing", limit=limit)]


def set_actor(tx: FencedTransaction, actor: str) -> None:
    """Whom the revisions written in this transaction name."""
    tx.execute("SELECT set_config('cronoq.actor', %s, true)", (actor,))


def prune_history(cursor: Cursor) -> int:
    """Remove old revisions, terms, workers, coordinators and statistics; how many rows."""
    return int(run(cursor, "prune_history")[0][0])
