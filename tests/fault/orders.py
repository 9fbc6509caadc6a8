"""Transactions of several sessions, step by step, in every order that can be, as PostgreSQL's isolation tester does it.

Each part of a race is a thread with a session of its own that stops before its next statement, and before its commit,
until it is told to go on. Wherever another one could have gone instead, another order begins. A step that waits for
another session's transaction is left waiting, and the order goes on with the others. (A BEGIN is no step: under READ
COMMITTED each statement sees what was committed before it, whenever its transaction began.)
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from cronoq_django.store import statements
from cronoq_django.store.session import Session, connect, transaction

PATIENT = {"lock_timeout": "30s", "statement_timeout": "30s"}  # for who is to wait until another lets go

Work = Callable[[Any], Any]
NOTHING = object()  # what a work comes to that changed and locked nothing: its commit is no step, it is all the same


@dataclass(frozen=True)
class Part:
    """What one of a race does in its transaction, `joined`: the statements that it executes together with the one
    before (also "commit"); `may`: the errors that it may end with; `then`: what it does in a transaction after that."""

    name: str
    work: Work
    joined: tuple[str, ...] = ()
    may: tuple[type[Exception], ...] = ()
    then: Work | None = None


Prepare = Callable[[], tuple[list[Part], Callable[[], None]]]


class Gated:
    """A cursor that stops before each statement but the very first."""

    def __init__(self, cursor: Any, pause: Callable[[str], None], *, is_first: bool) -> None:
        self._cursor = cursor
        self._pause = pause
        self._is_first = is_first

    @property
    def description(self) -> Any:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return int(self._cursor.rowcount)

    def execute(self, query: Any, params: Any = None, /) -> Any:
        if not self._is_first:
            self._pause(query.split()[2])  # /* cronoq: name */
        self._is_first = False
        return self._cursor.execute(query, params)

    def fetchall(self) -> Any:
        return self._cursor.fetchall()


class Actor:
    """A session, and the thread that executes one part of each race on it, step by step."""

    def __init__(self, number: int) -> None:
        self.session: Session = connect("default", name=f"race {number}", settings=PATIENT)
        self.pid = self.session.info.backend_pid
        self._thread = ThreadPoolExecutor(1)
        self._go, self._there = threading.Semaphore(0), threading.Semaphore(0)
        self.is_waiting = False
        self._is_over = False  # a test failed in the middle of a race

    def begin(self, part: Part) -> None:
        self.part = part
        self.error: Exception | None = None
        self.is_done = self.is_waiting = False
        self._thread.submit(self._perform)

    def _perform(self) -> None:
        self._go.acquire()
        try:
            for work in (self.part.work, self.part.then):
                if work is not None:
                    with transaction(self.session) as cursor:
                        if work(Gated(cursor, self._pause, is_first=work is self.part.work)) is not NOTHING:
                            self._pause("commit")
        except Exception as error:
            self.error = error
        finally:
            self.is_done = True
            self._there.release()

    def _pause(self, before: str) -> None:
        if before not in self.part.joined:
            self._there.release()
            self._go.acquire()
            if self._is_over:
                raise InterruptedError

    def go(self) -> None:
        self._go.release()

    def has_come(self, seconds: float) -> bool:
        """Whether it has done its step."""
        return self._there.acquire(timeout=seconds)

    def end(self) -> None:
        """Go no further, wherever it stands."""
        self._is_over = True
        self._go.release()

    def close(self) -> None:
        self._thread.shutdown()
        self.session.close()


class Orders:
    """Runs parts in one order of their steps after the other, each with new rows. While it is there, the database has
    the `witness`, which `forget` drops."""

    def __init__(self, *, sessions: int, witness: str, forget: str) -> None:
        self.referee = connect("default", name="referee", settings=PATIENT)
        self.referee.execute(witness)
        self._forget = forget
        self._actors = [Actor(number) for number in range(sessions)]
        self.waits: Counter[str] = Counter()  # who waited for another one
        self.seen: Counter[str] = Counter()

    def close(self) -> None:
        for actor in self._actors:
            actor.end()
        for actor in self._actors:
            actor.close()
        self.referee.execute(self._forget)
        self.referee.close()

    def every_order(self, prepare: Prepare) -> int:
        """Run each order that can be once; how many there are. `prepare` makes the rows, and says what to check."""
        orders: list[tuple[int, ...]] = [()]
        count = 0
        while orders:
            orders += self._run(orders.pop(), *prepare())
            count += 1
        return count

    def _run(self, order: tuple[int, ...], parts: list[Part], check: Callable[[], None]) -> list[tuple[int, ...]]:
        """One order to its end; those that part from it where nothing was prescribed."""
        actors = self._actors[: len(parts)]
        for actor, part in zip(actors, parts, strict=True):
            actor.begin(part)
        taken: tuple[int, ...] = ()
        forks = []
        told: list[str] = []
        while able := [n for n, actor in enumerate(actors) if not (actor.is_done or actor.is_waiting)]:
            if len(taken) < len(order):
                number = order[len(taken)]
                assert number in able, f"not as it was the last time: {told}"
            else:
                number, *others = able
                forks += [(*taken, other) for other in others]
            taken += (number,)
            told.append(parts[number].name)
            actors[number].go()
            self._see(actors[number], told)
            for actor in actors:
                if actor.is_waiting:
                    self._see(actor, told)
        assert not any(actor.is_waiting for actor in actors), f"they wait for each other: {told}"
        for actor in actors:
            if actor.error is not None and not isinstance(actor.error, actor.part.may):
                raise AssertionError(f"{actor.part.name} failed, in the order {', '.join(told)}") from actor.error
            self.seen[f"{actor.part.name} {type(actor.error).__name__ if actor.error else 'done'}"] += 1
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"in the order {', '.join(told)}: {error}") from error
        return forks

    def _see(self, actor: Actor, told: list[str]) -> None:
        """Wait until its step is done, or waits for another's transaction."""
        others = [other.pid for other in self._actors if other is not actor]
        while not actor.has_come(0.004):
            row = self.referee.execute("SELECT %s::int[] && pg_blocking_pids(%s)", (others, actor.pid)).fetchone()
            if row == (True,):
                if not actor.is_waiting:
                    told.append(f"({actor.part.name} waits)")
                    self.waits[actor.part.name] += 1
                actor.is_waiting = True
                return
        actor.is_waiting = False


def break_statement(monkeypatch: pytest.MonkeyPatch, name: str, part: str, broken: str) -> None:
    """From now on that statement has `broken` where it had `part`: the orders have to find it out."""
    whole = statements.statement
    assert part in whole(name)
    monkeypatch.setattr(statements, "statement", lambda n: whole(n).replace(part, broken) if n == name else whole(n))
