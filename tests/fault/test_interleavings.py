"""Two leaders' steps in every order that can be, on the real server, as PostgreSQL's own isolation tester does it.

A leader that lost its lock and doesn't know does not stop: it raises the epoch, reads the fence, writes and commits, as
slowly as it likes, while its successor does the same. Killing and freezing processes hits some of these races; here no
order is left to chance. The first to go for the lock is called A: what holds of A and B holds of B and A.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import timedelta
from itertools import combinations_with_replacement, product
from math import comb

import pytest

from cronoq_django.errors import CannotLead, Fenced, Unavailable
from cronoq_django.store import statements
from cronoq_django.store.leadership import FencedTransaction, Term, take_over, try_lock, unlock
from cronoq_django.store.session import Session, connect, transaction

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

# A blocked step waits for the step that frees it. The product's short timeouts would end it, sometimes.
PATIENT = {"lock_timeout": "30s", "statement_timeout": "30s"}

# COMMIT itself stamps a row, with the epoch that is in force by then: a witness that knows nothing of this test.
WRITTEN = """
CREATE UNLOGGED TABLE written (leader text, epoch bigint, epoch_at_commit bigint);
CREATE FUNCTION stamp_written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE written SET epoch_at_commit = (SELECT epoch FROM cronoq_leader) WHERE epoch_at_commit IS NULL;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER stamp AFTER INSERT ON written DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION stamp_written()
"""


class NotGotError(Exception):
    """Somebody else has the lock."""


class Leader:
    """One leader's session, the thread that waits for its answers, and the steps that it has yet to do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.step = ""
        self.doing: Future[None] | None = None
        self.is_blocked = False
        self._thread = ThreadPoolExecutor(1)
        self._connect()

    def _connect(self) -> None:
        self.session: Session = connect("default", name=f"leader {self.name}", settings=PATIENT)
        self.pid = self.session.info.backend_pid
        self.is_dead = False
        self._open = ExitStack()  # its transaction

    def begin(self, steps: list[str]) -> None:
        """As new, with these steps to do."""
        if self.is_dead:
            self._connect()
        unlock(self.session)
        self.steps = list(steps)

    @property
    def can_go(self) -> bool:
        """Whether its next step can be asked for. A session that waits can only die."""
        return bool(self.steps) and (not self.is_blocked or self.steps[0] == "die")

    def submit(self, step: str) -> None:
        self.step = step
        self.doing = self._thread.submit(self._do, step)

    def _do(self, step: str) -> None:
        try:
            for part in step.split("+"):
                getattr(self, part)()
        except Exception:
            with self._open:
                raise

    def close(self) -> None:
        self._thread.shutdown()
        self.session.close()

    def lock(self) -> None:
        if self.is_dead:
            self._connect()
        if not try_lock(self.session):
            raise NotGotError

    def bump(self) -> None:
        self._open.enter_context(transaction(self.session))  # around take_over's, for it to stay open
        self.term: Term = take_over(self.session, coordinator=uuid.uuid4(), host=self.name, ttl=timedelta(seconds=9))

    def fence(self) -> None:
        self._tx = self._open.enter_context(FencedTransaction.begin(self.session, self.term))

    def write(self) -> None:
        self._tx.execute("INSERT INTO written VALUES (%s, %s)", (self.name, self.term.epoch))

    def commit(self) -> None:
        self._open.close()

    settle = commit  # the bump's

    def lose(self) -> None:
        unlock(self.session)


class Race:
    """Runs two leaders' steps in one order after the other, each beginning with an empty leader table."""

    def __init__(self) -> None:
        self.orders: list[tuple[int, ...]] = []
        self.seen: Counter[str] = Counter()  # in all orders
        self._referee = connect("default", name="referee")
        self._referee.execute(WRITTEN)
        self._leaders = (Leader("A"), Leader("B"))

    def close(self) -> None:
        for leader in self._leaders:
            self._referee.execute("SELECT pg_terminate_backend(%s)", (leader.pid,))  # it may wait for the other
        for leader in self._leaders:
            leader.close()
        self._referee.execute("DROP TABLE written; DROP FUNCTION stamp_written")
        self._referee.close()

    def wrongs(self, a: list[str], b: list[str]) -> Iterator[str]:
        """What goes wrong in any order of these steps in which A goes first.

        An order is run as far as it is prescribed, and then somehow to its end. Wherever the other leader could have
        gone instead, another order begins. So each that can be is run once: one that asks for a step of a session that
        waits can't be.
        """
        orders: list[tuple[int, ...]] = [(0,)]
        while orders:
            orders += self._run(orders.pop(), a, b)
            if self._wrongs:
                yield f"{', '.join(self._told)}: {'; '.join(self._wrongs)}"

    def _run(self, order: tuple[int, ...], *steps: list[str]) -> list[tuple[int, ...]]:
        """Run one order to its end; the others that part from it where nothing was prescribed."""
        for leader, its_steps in zip(self._leaders, steps, strict=True):
            leader.begin(its_steps)
        self._referee.execute("DELETE FROM cronoq_leader; DELETE FROM written")
        self._epoch = 0  # the last that was settled
        self._committed: list[tuple[str, int, int]] = []
        self._told: list[str] = []
        self._wrongs: list[str] = []
        taken: tuple[int, ...] = ()
        forks = []
        while able := [number for number, leader in enumerate(self._leaders) if leader.can_go]:
            if len(taken) < len(order):
                number = order[len(taken)]
                assert number in able, f"not as it was the last time: {self._told}"
            else:
                number, *others = able
                forks += [(*taken, other) for other in others]
            taken += (number,)
            self._step(self._leaders[number], self._leaders[1 - number])
        assert not any(leader.is_blocked for leader in self._leaders), f"they wait for each other: {self._told}"
        self._check_rows()
        self.orders.append(taken)
        return forks

    def _step(self, leader: Leader, other: Leader) -> None:
        """One step of one leader, and what it frees the other to do."""
        step = leader.steps.pop(0)
        self._told.append(f"{leader.name} {step}")
        if step != "die":
            leader.submit(step)
        else:
            leader.is_dead = True
            self._referee.execute("SELECT pg_terminate_backend(%s)", (leader.pid,))
            while self._referee.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (leader.pid,)).fetchone():
                pass  # a few milliseconds; its locks go before it
            if not leader.is_blocked and leader.steps and leader.steps[0] != "lock":
                leader.submit(leader.steps.pop(0))  # so it comes to know
        self._answer(leader)
        self._answer(other)

    def _answer(self, leader: Leader) -> None:
        """Wait until the leader's step is done, or waits for the other leader."""
        while leader.doing is not None:
            if not leader.is_blocked:
                wait((leader.doing,), timeout=0.002)  # most are done by then, and the server need not be asked
            if not leader.doing.done() and self._waits(leader):
                if not leader.is_blocked:
                    self._tell(leader, "waits")
                leader.is_blocked = True
                return
            leader.is_blocked = False
            if leader.doing.done():
                error, leader.doing = leader.doing.exception(), None
                self._judge(leader, error)

    def _waits(self, leader: Leader) -> bool:
        """Whether the server says that the other leader, and nothing else, is in this one's way."""
        (other,) = (one for one in self._leaders if one is not leader)
        row = self._referee.execute("SELECT %s = ANY (pg_blocking_pids(%s))", (other.pid, leader.pid)).fetchone()
        return row == (True,)

    def _tell(self, leader: Leader, what: str) -> None:
        self._told.append(f"({leader.name} {what})")
        self.seen[f"{leader.step.split('+')[0]} {what}"] += 1

    def _judge(self, leader: Leader, error: BaseException | None) -> None:
        """How a step ended, and whether that may be."""
        if isinstance(error, NotGotError | Fenced | CannotLead) or (isinstance(error, Unavailable) and leader.is_dead):
            self._tell(leader, type(error).__name__)
            if leader.step.startswith("fence") and not leader.is_dead and leader.term.epoch == self._epoch:
                self._wrongs.append(f"{leader.name} was fenced out of epoch {self._epoch}, which is its own")
            while leader.steps and leader.steps[0] != "lock":
                leader.steps.pop(0)  # it steps down
        elif error is not None:
            raise AssertionError(f"{leader.name} failed: {self._told}") from error
        elif leader.is_dead:
            self._wrongs.append(f"{leader.name} did {leader.step} when it was dead")
        elif "settle" in leader.step:
            self._epoch += 1
            if leader.term.epoch != self._epoch:
                self._wrongs.append(f"{leader.name} began epoch {leader.term.epoch}, not {self._epoch}")
        elif leader.step == "commit":
            self._committed.append((leader.name, leader.term.epoch, self._epoch))

    def _check_rows(self) -> None:
        """The rows are those that were committed, no others, and each is of the epoch in which it was."""
        rows = self._referee.execute("SELECT * FROM written").fetchall()
        if sorted(rows) != sorted(self._committed):
            self._wrongs.append(f"there is {rows}, but {self._committed} was committed")
        self._wrongs += [f"stale: {name} wrote for epoch {mine} in {now}" for name, mine, now in rows if mine != now]
        if len({epoch for _, epoch, _ in rows}) != len({(name, epoch) for name, epoch, _ in rows}):
            self._wrongs.append(f"two leaders wrote in one epoch: {rows}")
        if self._referee.execute("SELECT coalesce(max(epoch), 0) FROM cronoq_leader").fetchone() != (self._epoch,):
            self._wrongs.append(f"the table's epoch is not {self._epoch}")


@pytest.fixture
def race(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Race]:
    for module in ("session", "leadership"):  # no pooler is near, and thousands of bumps would each connect once more
        monkeypatch.setattr(f"cronoq_django.store.{module}.changes_backend", lambda session: False)
    race = Race()
    yield race
    race.close()


def steps(listed: str, *losses: str) -> list[list[str]]:
    """These steps, with the losses, in their order, in all places between the lock and the next try for it.

    Steps that are joined by + are one. To "lose" is to lose the lock but not the session; to "die" is to lose both.
    """
    lists = []
    parts = listed.split()
    end = parts.index("lock", 1) if "lock" in parts[1:] else len(parts)
    for places in combinations_with_replacement(range(1, end + 1), len(losses)):
        lists.append(list(parts))
        for place, loss in reversed(list(zip(places, losses, strict=True))):
            lists[-1].insert(place, loss)
    return lists


TERM = "lock bump settle fence write commit"
RESUMED = f"{TERM} fence write commit"
SHORT = "lock bump+settle fence+write commit"
AGAIN = f"{SHORT} {SHORT}"

WAITED = {"bump waits", "fence Fenced"}
RACES = {
    "A loses the lock": (steps(RESUMED, "lose"), steps(RESUMED), WAITED | {"fence waits"}),
    "A dies": (steps(RESUMED, "die"), steps(RESUMED), {"commit Unavailable"}),
    "A loses the lock, then dies": (steps(TERM, "lose", "die"), steps(TERM), WAITED | {"commit Unavailable"}),
    "A loses the lock, B dies": (steps(TERM, "lose"), steps(TERM, "die"), WAITED | {"bump Unavailable"}),
    "A loses the lock, B too, A leads again": (steps(AGAIN, "lose"), steps(SHORT, "lose"), WAITED),
    "A dies, B loses the lock, A leads again": (steps(AGAIN, "die"), steps(SHORT, "lose"), WAITED),
}


@pytest.mark.parametrize("name", RACES)
def test_no_order_lets_a_stale_leader_write(race: Race, name: str) -> None:
    all_a, all_b, expected = RACES[name]
    assert [wrong for a, b in product(all_a, all_b) for wrong in race.wrongs(a, b)] == []
    assert expected <= set(race.seen)


@pytest.mark.parametrize(
    ("name", "part", "broken", "wrong"),
    [
        ("fence", "FOR SHARE", "FOR KEY SHARE", "stale"),
        ("fence", "FOR SHARE", "", "stale"),
        ("take_over", "epoch + 1", "epoch", "two leaders wrote in one epoch"),
    ],
)
def test_a_broken_statement_is_found_out(
    race: Race, monkeypatch: pytest.MonkeyPatch, name: str, part: str, broken: str, wrong: str
) -> None:
    """A race that cannot be lost proves nothing."""
    whole = statements.statement
    assert part in whole(name)
    monkeypatch.setattr(statements, "statement", lambda n: whole(n).replace(part, broken) if n == name else whole(n))
    assert any(wrong in told for a, b in product(steps(TERM, "lose"), steps(TERM)) for told in race.wrongs(a, b))


def test_every_order_is_run_once(race: Race) -> None:
    """Steps that never wait can go in any order; only that A's first goes first."""
    assert list(race.wrongs(["lose"] * 4, ["lose"] * 5)) == []
    assert len(race.orders) == len(set(race.orders)) == comb(3 + 5, 5)
