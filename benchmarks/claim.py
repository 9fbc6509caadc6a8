"""Claiming and completing beside an old transaction, which keeps every dead entry in the index of the queue."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

from django.db import connections

from benchmarks.measure import empty_cluster, say
from cronoq_django.models.choices import Outcome, Status
from cronoq_django.store.rounds import write_round
from cronoq_django.store.runs import ClaimedRun, Completion
from cronoq_django.store.session import Session, connect
from cronoq_django.worker.claimer import Claimer
from cronoq_django.worker.sessions import session_settings

ALL, PART, BATCH = 200_000, 20_000, 100
APART, TIED = "clock_timestamp()", "'2026-01-01T00:00Z'"


def main() -> None:
    """Runs claimed and completed a second, 100 a round: the first and the last tenth of 200,000."""
    for what, feed in {
        "one after the other": _at_once(APART),
        "all due at the same instant": _at_once(TIED),
        "a trickle: the queue is mostly empty": _trickle,
        "half of them, older, committed late": _late,
    }.items():
        with empty_cluster(), _old_transaction() as session:
            first, last = _rates(session, feed)
        say(what, f"{first:,.0f} → {last:,.0f} runs/s", f"{100 * last / first:.0f} %")


def _rates(session: Session, feed: Callable[[int], None]) -> tuple[float, float]:
    """Of the first and of the last part. What it takes to queue runs does not count."""
    claimer = Claimer(uuid4(), {"default": BATCH})
    held: list[ClaimedRun] = []
    times, done = [], 0
    while done < ALL:
        feed(done)
        claimer.wake([("default", 0)])
        begun = time.perf_counter()
        claims = claimer.claims(session, {"default": 0})
        written = write_round(
            session, details=[], completions=[_succeeded(run) for run in held], begun=[], claims=claims
        )
        claimer.answered(claims, written.claimed)
        times.append((len(held), time.perf_counter() - begun))
        done += len(held)
        held = [run for runs in written.claimed for run in runs]
    return _rate(times), _rate(times[::-1])


def _rate(times: list[tuple[int, float]]) -> float:
    done, seconds = 0, 0.0
    for number, took in times:
        done, seconds = done + number, seconds + took
        if done >= PART:
            break
    return done / seconds


def _succeeded(run: ClaimedRun) -> Completion:
    took = timedelta(milliseconds=1)
    return Completion(
        id=run.id, claim=run.claim, outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED, result="null", took=took
    )


def _at_once(due: str) -> Callable[[int], None]:
    return lambda done: _queue(ALL, due) if not done else None


def _trickle(done: int) -> None:
    _queue(BATCH, APART)


def _late(done: int) -> None:
    """One half is there from the beginning; when a third is done, the older half comes."""
    if not done:
        _queue(ALL // 2, APART)
    elif done // BATCH == ALL // BATCH // 3:
        _queue(ALL // 2, "clock_timestamp() - interval '1 hour'")


def _queue(number: int, due: str) -> None:
    with connections["benchmarks"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, due_at) SELECT gen_random_uuid(), "
            f"'enqueue', 'x', '[1]', '{{}}', 'queued', {due} FROM generate_series(1, {number})"
        )


@contextmanager
def _old_transaction() -> Iterator[Session]:
    """A session to work on, while another one has a snapshot from before all of it."""
    session = connect("benchmarks", name="benchmark", settings=session_settings())
    reader = connect("benchmarks", name="an old transaction")
    try:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT FROM cronoq_pool")
        yield session
    finally:
        reader.close()
        session.close()
