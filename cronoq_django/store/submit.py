"""Submit: new runs, with their keys and prerequisites, in the caller's transaction.

A key is unique among the runs that hold it: those that are open, and those within `key_for` of their end. There is a
statement for each step, on purpose. Insert, and do nothing on conflict, waiting for whoever just inserted the same key;
else look who holds it; else, if that one's time is over, free the key and insert again. (In one statement the look has
the snapshot from before the wait and finds nobody; DO UPDATE would lock the holder against its own completion.)
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from uuid import UUID

from cronoq_django.errors import NotFound, Unavailable
from cronoq_django.store.runs import NewRun, insert_runs
from cronoq_django.store.statements import Cursor, run

TRIES = 100
CHUNK = 5_000  # runs in a statement
CHUNK_BYTES = 16_000_000  # of arguments in a statement


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a new run: it was created; or the one that was there already, with its id."""

    id: UUID
    created_at: datetime
    created: bool


def key_hash(key: str) -> bytes:
    """What the unique index holds: a key itself may be longer than an index entry can be."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def submit_runs(
    cursor: Cursor, runs: Iterable[NewRun], prerequisites: Mapping[UUID, Mapping[UUID, str]] = MappingProxyType({})
) -> dict[UUID, Submitted]:
    """Insert runs; what became of each, by its id. `prerequisites`: by id of a new run, the conditions by prerequisite.
    Runs with keys come in the order of these (`in_order`): two
    transactions that insert the same ones must not wait for each other.

    Raises NotFound, before anything is written, if a prerequisite is neither new nor there.
    """
    if prerequisites:
        runs = list(runs)
        _lock_prerequisites(cursor, {id_ for waited in prerequisites.values() for id_ in waited} - {r.id for r in runs})
    submitted: dict[UUID, Submitted] = {}
    for chunk in _chunks(runs):
        submitted |= _submit(cursor, chunk)
    if prerequisites:
        _insert_dependencies(cursor, prerequisites, submitted)
    return submitted


def _lock_prerequisites(cursor: Cursor, ids: Collection[UUID]) -> None:
    there = {row[0] for row in run(cursor, "lock_prerequisites", ids=list(ids))} if ids else set()
    if missing := sorted(set(ids) - there):
        raise NotFound(f"after: there is no run {missing[0]}")


def in_order(runs: Iterable[NewRun]) -> list[NewRun]:
    """Runs in the order of their keys."""
    return sorted(runs, key=lambda one: one.key_hash or b"")


def _submit(cursor: Cursor, runs: Sequence[NewRun]) -> dict[UUID, Submitted]:
    """Insert runs, with keys in their order. Who has inserted one and comes back for one before it may wait for who has
    that one, and waits for the other: then it lets go of all, and goes on in halves, one after the other."""
    if sum(one.key_hash is not None for one in runs) > 1:
        cursor.execute("/* cronoq: submit */ SAVEPOINT cronoq_submit")
        found, left, _ = _insert(cursor, runs)
        if left:
            cursor.execute("/* cronoq: submit */ ROLLBACK TO SAVEPOINT cronoq_submit")
        cursor.execute("/* cronoq: submit */ RELEASE SAVEPOINT cronoq_submit")
        if left:
            half = len(runs) // 2
            return _submit(cursor, runs[:half]) | _submit(cursor, runs[half:])
        return found
    submitted: dict[UUID, Submitted] = {}
    left = list(runs)
    for _ in range(TRIES):
        found, left, over = _insert(cursor, left)
        submitted |= found
        if not left:
            return submitted
        if over:
            run(cursor, "free_keys", ids=over, limit=len(over), now=None)
    raise Unavailable(f"the key {left[0].key!r} changes hands all the time")


def _insert(cursor: Cursor, runs: Sequence[NewRun]) -> tuple[dict[UUID, Submitted], list[NewRun], list[UUID]]:
    """Insert runs, and look who is in the way of the others: what is known of them by then, which of them are to be
    inserted again, and the runs whose time with their keys is over."""
    found = {id_: Submitted(id_, at, created=True) for id_, at in insert_runs(cursor, runs).items()}
    left = [one for one in runs if one.id not in found]
    if not left:
        return found, [], []
    hashes = [one.key_hash for one in left if one.key_hash is not None]
    rows = run(cursor, "held_runs", ids=[one.id for one in left], hashes=hashes, now=None)
    # One that was inserted before by its own id, and one that holds the key. (Whoever held it may just have ended.)
    there = {id_: (id_, created_at) for id_, created_at, _, _ in rows}
    holders = {bytes(held): there[id_] for id_, _, held, is_over in rows if held is not None and not is_over}
    for one in left:
        if (row := there.get(one.id) or holders.get(one.key_hash or b"")) is not None:
            found[one.id] = Submitted(*row, created=False)
    return found, [one for one in left if one.id not in found], [id_ for id_, _, _, is_over in rows if is_over]


def _insert_dependencies(
    cursor: Cursor, prerequisites: Mapping[UUID, Mapping[UUID, str]], found: Mapping[UUID, Submitted]
) -> None:
    """Of the runs that were created; a prerequisite that was there already, under its key, stands for the new one."""
    pairs: dict[tuple[UUID, UUID], str] = {}
    late: set[UUID] = set()
    for waiting, waited in prerequisites.items():
        if not found[waiting].created:
            continue
        for id_, condition in waited.items():
            known = found.get(id_)
            there = id_ if known is None else known.id
            if pairs.setdefault((waiting, there), condition) != condition:
                raise ValueError(f"after: the run {there} stands for two, which are to end differently")
            if known is None or not known.created:
                late.add(there)
    if any(not one.created for one in found.values()):
        refuse_circle(pairs)  # which was none before some stood for others
    rows = list(pairs.items())
    for start in range(0, len(rows), CHUNK):
        some = rows[start : start + CHUNK]
        run(
            cursor,
            "insert_dependencies",
            run=[pair[0] for pair, _ in some],
            prerequisite=[pair[1] for pair, _ in some],
            condition=[str(condition) for _, condition in some],
            late=list(late) if start == 0 else [],
        )


def refuse_circle(pairs: Iterable[tuple[UUID, UUID]], names: Mapping[UUID, str] = MappingProxyType({})) -> None:
    """Raise ValueError if, of these pairs of a run and what it waits for, some wait for each other; by their names."""
    graph: dict[UUID, list[UUID]] = {}
    for waiting, waited in pairs:
        graph.setdefault(waiting, []).append(waited)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " → ".join(names.get(id_, str(id_)) for id_ in error.args[1])
        raise ValueError(f"after: these runs wait for each other: {circle}") from None


def _chunks(runs: Iterable[NewRun]) -> Iterator[list[NewRun]]:
    chunk: list[NewRun] = []
    size = 0
    for one in runs:
        if chunk and (len(chunk) == CHUNK or size > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += len(one.args) + len(one.kwargs)
    if chunk:
        yield chunk
