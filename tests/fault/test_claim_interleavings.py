"""Everything that happens to a claimed run, in twos and threes, in every order that can be, on the real server.

Workers claim, renew, and write outcomes; leaders take back what they think is lost, supervisors what they know to be;
people cancel. Each of these is right alone. What other queues suffered from was two of them on one row: two owners, an
outcome over another one, an attempt charged twice, a key that nobody had and nobody could take.

What each of them says it did has to be what a trigger saw it do, and what that saw has to be allowed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, cycle, product
from typing import Any
from uuid import UUID

import pytest

from cronoq_django.models.choices import OPEN, TERMINAL, Status

from .acts import ACTS, CLAIM, OTHERS, OUTCOMES, OWNER, RUN, Act, Said, cancel_waiting, rescue
from .orders import NOTHING, Orders, Part, break_statement

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

CHILD = UUID(int=3)

# Who did what to which row, as triggers see it. `deal` makes the rows of the next order: a run with a key, and one that
# waits for its success. Of the states, running is with a live lease, expired without, and asked also to be cancelled.
WITNESS = f"""
CREATE UNLOGGED TABLE seen (
    number int GENERATED ALWAYS AS IDENTITY, who text DEFAULT split_part(current_setting('application_name'), ' ', 2),
    run uuid, what text, before text, after text, claim bigint, counted int, attempt text,
    begun boolean, expired boolean, asked boolean, key boolean);
CREATE FUNCTION see_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen (run, what, before, after, claim, counted, begun, expired, asked, key)
    VALUES (NEW.id,
            CASE WHEN OLD.status <> NEW.status OR OLD.claim IS DISTINCT FROM NEW.claim THEN NEW.status
                 WHEN OLD.cancel_requested_at IS DISTINCT FROM NEW.cancel_requested_at THEN 'asked'
                 WHEN OLD.started_at IS DISTINCT FROM NEW.started_at THEN 'begun'
                 WHEN OLD.lease_expires_at IS DISTINCT FROM NEW.lease_expires_at THEN 'renewed'
                 ELSE 'touched' END,
            OLD.status, NEW.status, coalesce(NEW.claim, OLD.claim), NEW.attempts - OLD.attempts,
            OLD.started_at IS NOT NULL, OLD.lease_expires_at < now(), OLD.cancel_requested_at IS NOT NULL,
            NEW.key_held);
    RETURN NULL;
END $$;
CREATE FUNCTION see_attempt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen (run, what, claim, attempt) VALUES (NEW.run_id, 'attempt', NEW.claim, NEW.outcome);
    RETURN NULL;
END $$;
CREATE TRIGGER see AFTER UPDATE ON cronoq_run FOR EACH ROW EXECUTE FUNCTION see_run();
CREATE TRIGGER see AFTER INSERT OR UPDATE ON cronoq_attempt FOR EACH ROW EXECUTE FUNCTION see_attempt();
CREATE FUNCTION deal(state text) RETURNS void LANGUAGE sql AS $$
    DELETE FROM cronoq_run;
    DELETE FROM cronoq_attempt;
    DELETE FROM cronoq_unsettled;
    DELETE FROM seen;
    INSERT INTO cronoq_run (id, trigger, script, args, kwargs, key, key_hash, key_held, status, worker_id, claim,
                            lease_expires_at, cancel_requested_at)
    SELECT '{RUN}', 'enqueue', 'tests.tasks.add', '[1]', '{{}}', 'k', 'k', true,
           CASE state WHEN 'queued' THEN state ELSE 'running' END, '{OWNER}',
           CASE WHEN state <> 'queued' THEN {CLAIM} END,
           CASE WHEN state <> 'queued' THEN now() + CASE state WHEN 'expired' THEN -1 ELSE 1 END * interval '1 h' END,
           CASE state WHEN 'asked' THEN now() END;
    INSERT INTO cronoq_run (id, trigger, script, args, kwargs, status, pool)
    VALUES ('{CHILD}', 'enqueue', 'tests.tasks.add', '[1]', '{{}}', 'blocked', 'later');
    INSERT INTO cronoq_dependency (run_id, prerequisite_id, condition) VALUES ('{CHILD}', '{RUN}', 'success');
$$
"""
FORGET = """
DROP TRIGGER see ON cronoq_run; DROP TRIGGER see ON cronoq_attempt;
DROP FUNCTION see_run; DROP FUNCTION see_attempt; DROP FUNCTION deal; DROP TABLE seen
"""
SEEN = """
SELECT who::int, run, what, before, after, claim, counted, attempt, begun, expired, asked, key FROM seen ORDER BY number
"""
STANDS = f"""
SELECT run.status, run.claim, run.attempts, run.key_held, child.status, EXISTS (SELECT FROM cronoq_unsettled)
FROM cronoq_run AS run, cronoq_run AS child WHERE run.id = '{RUN}' AND child.id = '{CHILD}'
"""

MAY = {  # become of a run
    (Status.QUEUED, Status.RUNNING),
    (Status.QUEUED, Status.CANCELLED),
    (Status.SCHEDULED, Status.CANCELLED),
    *((Status.RUNNING, after) for after in (Status.QUEUED, Status.SCHEDULED, "succeeded", "failed", "cancelled")),
}


@dataclass(frozen=True)
class Seen:
    """A row of the witness: who did what to which run, and what was so before it."""

    who: int
    run: UUID
    what: str
    before: str
    after: str
    claim: int | None
    counted: int
    attempt: str | None  # instead of a run's, an attempt's row
    begun: bool
    expired: bool
    asked: bool
    key: bool

    @property
    def is_change(self) -> bool:
        return self.what == self.after


class Race(Orders):
    """Acts on one run."""

    def __init__(self) -> None:
        super().__init__(sessions=3, witness=WITNESS, forget=FORGET)
        self.became: Counter[str] = Counter()

    def orders_of(self, state: str, acts: Sequence[Act], *, joined: tuple[str, ...] = ()) -> int:
        """Run every order of these acts on a run in that state; how many there are."""

        def prepare() -> tuple[list[Part], Callable[[], None]]:
            self.referee.execute("SELECT deal(%s)", (state,))
            said: list[list[Said]] = [[] for _ in acts]
            parts = [part(act, words, joined) for act, words in zip(acts, said, strict=True)]
            return parts, lambda: self._check(state, acts, said)

        return self.every_order(prepare)

    def _check(self, state: str, acts: Sequence[Act], said: list[list[Said]]) -> None:
        rows = [Seen(*row) for row in self.referee.execute(SEEN).fetchall()]
        seen = [row for row in rows if row.run == RUN and row.attempt is None]
        for number, words in enumerate(said):
            did = [(row.what, row.claim) for row in seen if row.who == number]
            agrees = len(words) == len(did) and all(
                w == d or w == (d[0], None) for w, d in zip(words, did, strict=True)
            )
            assert agrees, f"{acts[number].name} said {words} and did {did}"
        for row in seen:
            check_row(row, acts[row.who])
        changes = [row for row in seen if row.is_change]
        ends = [row for row in changes if row.after in TERMINAL]
        status, claim, attempts, key, child, is_left = self.referee.execute(STANDS).fetchall()[0]
        first = Status.QUEUED if state == "queued" else Status.RUNNING
        assert status == (changes[-1].after if changes else first)
        assert claim == ((changes[-1].claim if changes else CLAIM) if status == Status.RUNNING else None)
        assert attempts == sum(row.counted for row in seen)
        assert key == (status in OPEN), "its key"
        assert ends == changes[-1:] if status in TERMINAL else not ends
        # What waits for it follows in the same transaction, or is left to the leader.
        follows = [(row.who, row.after) for row in rows if row.run == CHILD]
        leaves = bool(ends) and acts[ends[0].who].act is cancel_waiting
        becomes = Status.QUEUED if status == Status.SUCCEEDED else Status.SKIPPED
        assert follows == [(row.who, becomes) for row in ends if not leaves], "what waits for it"
        assert (child, is_left) == (becomes if ends and not leaves else Status.BLOCKED, leaves)
        # One row for each attempt, by whoever ended it.
        noted = [(row.who, row.claim) for row in rows if row.attempt is not None]
        assert len(noted) == len(set(noted))
        assert set(noted) <= {(row.who, row.claim) for row in changes if row.before == Status.RUNNING}
        self.became[status] += 1


def part(act: Act, said: list[Said], joined: tuple[str, ...]) -> Part:
    def work(cursor: Any) -> Any:
        return keep(act.act(cursor))

    def then(cursor: Any) -> Any:
        return keep(act.then(cursor, said)) if act.then is not None else NOTHING

    def keep(words: list[Said]) -> Any:
        said.extend(words)
        return words or NOTHING

    return Part(act.name, work, joined, then=then if act.then else None)


def check_row(row: Seen, act: Act) -> None:
    """Whether this may be done to a run as it was."""
    if not row.is_change:
        assert (row.before, row.after, row.counted) == (Status.RUNNING, Status.RUNNING, 0), row
        return
    assert (row.before, row.after) in MAY, row
    assert row.key == (row.after in OPEN), row
    if row.before == Status.RUNNING:
        assert row.counted == (row.begun if act.counts is None else act.counts), row
        assert row.expired or act.act is not rescue, row
        assert row.after in (Status.SUCCEEDED, Status.CANCELLED) or not row.asked, row
    else:
        assert row.counted == 0, row


@pytest.fixture
def race(transactional_db: None) -> Iterator[Race]:
    race = Race()
    yield race
    race.close()


COMES_TO = {
    "queued": {"queued", "running", "succeeded", "cancelled"},
    "running": {"queued", "running", "succeeded", "cancelled", "failed", "scheduled"},
    "expired": {"queued", "running", "succeeded", "cancelled", "failed", "scheduled"},
    "asked": {"running", "succeeded", "cancelled"},
}


@pytest.mark.parametrize("state", COMES_TO)
def test_two_at_a_time(race: Race, state: str) -> None:
    """Each with each, and with its like, stopped before each statement."""
    count = sum(race.orders_of(state, pair) for pair in combinations_with_replacement(ACTS.values(), 2))
    assert not race.waits
    assert set(race.became) == COMES_TO[state]
    print(f"two, {state}: {count} orders, {dict(race.became)}")


@pytest.mark.parametrize("state", COMES_TO)
def test_three_at_a_time(race: Race, state: str) -> None:
    """Any three; the outcomes, which are one statement, take turns. What becomes of dependants goes with the end."""
    outcomes = cycle(OUTCOMES.values())
    count = 0
    for names in combinations(["outcome", *OTHERS], 3):
        acts = [next(outcomes) if name == "outcome" else OTHERS[name] for name in names]
        count += race.orders_of(state, acts, joined=("lock_dependants", "settle_runs", "leave_dependants"))
    assert not race.waits
    assert set(race.became) == COMES_TO[state]
    print(f"three, {state}: {count} orders, {dict(race.became)}")


@pytest.mark.parametrize(
    ("name", "part", "broken"),
    [
        ("claim_runs", "FOR NO KEY UPDATE SKIP LOCKED", ""),
        ("claim_runs", "SKIP LOCKED", ""),
        ("renew_leases", "SKIP LOCKED", ""),
        ("complete_runs", "AND run.claim = given.claim", ""),
        ("complete_runs", "FOR NO KEY UPDATE OF run SKIP LOCKED", ""),
        ("take_back_runs", "FOR NO KEY UPDATE SKIP LOCKED", ""),
        ("take_back_runs", "lease_expires_at < coalesce(%(now)s::timestamptz, clock_timestamp())", "true"),
        ("take_back_runs", "decided.counts::int", "1"),
        ("request_cancel", "AND status = 'running'", ""),
        ("cancel_runs", "key_held = run.key_held AND run.key_for IS NOT NULL,", ""),
        ("settle_runs", "WHEN verdict.fails THEN 'skipped'", "WHEN false THEN 'skipped'"),
    ],
)
def test_a_broken_statement_is_found_out(
    race: Race, monkeypatch: pytest.MonkeyPatch, name: str, part: str, broken: str
) -> None:
    """A race that cannot be lost proves nothing."""
    break_statement(monkeypatch, name, part, broken)
    with pytest.raises(AssertionError, match=r"in the order|waits"):
        for state, pair in product(COMES_TO, combinations_with_replacement(ACTS.values(), 2)):
            race.orders_of(state, pair)
            assert not race.waits, f"{pair[0].name} or {pair[1].name} waits"
