"""Two callers enqueued the same thing at the same moment, and the one who was told "it is there already" lost it.

The first transaction, whose run the second caller was pointed to, was rolled back: nobody's task existed. Elsewhere the
second got an id that was null, or the database's error about a double, which left its own transaction good for nothing.
Here the second waits until it is known what becomes of the first; then its answer names a run that is there, and what
else it wrote is kept.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from cronoq_django import Duplicate, enqueue_many, get_run
from cronoq_django.errors import Unavailable
from cronoq_django.models import Pool, Run
from cronoq_django.models.choices import OPEN, Outcome, Status
from cronoq_django.store.runs import ClaimedRun, Completion, claim_runs, complete_runs
from tests import tasks

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "invoice 7"
DAY = timedelta(days=1)
CALLERS = 50
ROUNDS = 100

keyed = tasks.add.using(key=KEY)


class Caller:
    """Somebody with a thread and a database connection of its own, which do one thing after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._open = ExitStack()
        self.pid: int = self.do(self._connect)

    @staticmethod
    def _connect() -> int:
        connection.ensure_connection()
        return connection.connection.info.backend_pid

    @staticmethod
    def _disconnect() -> None:
        connection.close()  # the thread's own

    def start(self, function: Callable[..., Any], *arguments: Any) -> Future:
        return self._thread.submit(function, *arguments)

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.start(function, *arguments).result(timeout=60)

    def begin(self, isolation: str = "READ COMMITTED") -> None:
        def begin() -> None:
            self._open.enter_context(transaction.atomic())
            with connection.cursor() as cursor:
                cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
                cursor.execute("SELECT count(*) FROM cronoq_run")  # the snapshot, if there is to be one

        self.do(begin)

    def commit(self) -> None:
        self.do(self._open.close)

    def roll_back(self) -> None:
        def roll_back() -> None:
            transaction.set_rollback(True)
            self._open.close()

        self.do(roll_back)

    def close(self) -> None:
        self.do(self._disconnect)
        self._thread.shutdown()

    @property
    def is_waiting(self) -> bool:
        """Whether the server says that another transaction is in its way."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [self.pid])
            return bool(cursor.fetchone()[0])


@pytest.fixture
def callers(transactional_db: None) -> Iterator[tuple[Caller, Caller]]:
    first, second = Caller(), Caller()
    yield first, second
    with connection.cursor() as cursor:  # if the test failed, one may wait for the other
        cursor.execute("SELECT pg_cancel_backend(pid) FROM unnest(%s) AS pid", [[first.pid, second.pid]])
    first.close()
    second.close()


def note(name: str) -> None:
    """A write of the caller's own."""
    Pool.objects.create(name=name)


def noted() -> set[str]:
    return set(Pool.objects.values_list("name", flat=True))


def runs() -> list[str]:
    return [str(pk) for pk in Run.objects.order_by("id").values_list("pk", flat=True)]


def claim() -> ClaimedRun:
    with connection.cursor() as cursor:
        (claimed,) = claim_runs(cursor, worker=uuid4(), pool="default", limit=1, lease=timedelta(minutes=1))
    return claimed


def complete(run: ClaimedRun) -> None:
    done = Completion(
        id=run.id, claim=run.claim, outcome=Outcome.SUCCEEDED, status=Status.SUCCEEDED, took=timedelta(seconds=1)
    )
    with transaction.atomic(), connection.cursor() as cursor:
        assert complete_runs(cursor, [done]).accepted


@contextmanager
def right_after(statement: str, happens: Callable[[], None]) -> Iterator[None]:
    """Within, once: something happens between the statement of that name and what its caller does next."""
    left = [happens]

    def watch(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        answer = execute(sql, params, many, context)
        if left and str(sql).startswith(f"/* cronoq: {statement} */"):
            left.pop()()
        return answer

    with connection.execute_wrapper(watch):
        yield
    assert not left, f"{statement} was never executed"


# The second comes while the first is undecided


def test_b25_the_second_gets_a_run_of_its_own_when_the_first_rolls_back(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    first, second = callers
    first.begin()
    lost = first.do(keyed.enqueue, 1)
    second.begin()
    second.do(note, "before")
    answer = second.start(keyed.enqueue, 2)
    wait_until(lambda: second.is_waiting)
    assert not answer.done()
    first.roll_back()
    result = answer.result(timeout=60)
    second.do(note, "after")
    second.commit()
    assert result.created
    assert runs() == [result.id] != [lost.id]
    assert Run.objects.get().args == [2]
    assert noted() == {"before", "after"}


def test_b25_the_second_is_given_the_firsts_run_when_that_commits(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    first, second = callers
    first.begin()
    there = first.do(keyed.enqueue, 1)
    second.begin()
    second.do(note, "before")
    answer = second.start(keyed.enqueue, 2)
    wait_until(lambda: second.is_waiting)
    first.commit()
    result = answer.result(timeout=60)
    second.do(note, "after")
    second.commit()
    assert (result.id, result.created, result.args) == (there.id, False, [1])
    assert runs() == [there.id]
    assert noted() == {"before", "after"}


def test_b25_who_wants_to_be_told_is_told_and_goes_on(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    """The error is ours, raised after the statement: the caller's transaction is none the worse for it."""
    first, second = callers
    first.begin()
    there = first.do(keyed.enqueue, 1)
    second.begin()
    second.do(note, "before")
    answer = second.start(keyed.using(on_duplicate="raise").enqueue, 2)
    wait_until(lambda: second.is_waiting)
    first.commit()
    with pytest.raises(Duplicate) as refusal:
        answer.result(timeout=60)
    second.do(note, "after")
    second.commit()
    assert refusal.value.run == UUID(there.id)
    assert runs() == [there.id]
    assert noted() == {"before", "after"}


def test_b25_the_second_goes_on_when_the_firsts_session_is_cut(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    first, second = callers
    first.begin()
    first.do(keyed.enqueue, 1)
    answer = second.start(keyed.enqueue, 2)
    wait_until(lambda: second.is_waiting)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [first.pid])
    result = answer.result(timeout=60)
    assert result.created
    assert runs() == [result.id]
    with pytest.raises(Exception, match=r"terminat|closed"):
        first.do(note, "never")
    first.roll_back()


def test_b25_a_savepoint_that_is_undone_gives_the_key_up_before_the_end(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    first, second = callers
    first.begin()

    def enqueue_and_undo() -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            keyed.enqueue(1)
            raise ZeroDivisionError

    first.do(enqueue_and_undo)
    result = second.do(keyed.enqueue, 2)
    first.do(note, "kept")
    first.commit()
    assert result.created
    assert runs() == [result.id]
    assert noted() == {"kept"}


# Many at once


def at_once(functions: list[Callable[[], Any]]) -> list[Any]:
    """Call them all at the same moment, each on a connection of its own; what they returned."""
    barrier = threading.Barrier(len(functions))

    def call(function: Callable[[], Any]) -> Any:
        try:
            connection.ensure_connection()
            barrier.wait(timeout=60)
            return function()
        finally:
            connection.close()

    with ThreadPoolExecutor(max_workers=len(functions)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(call, function) for function in functions]]


def test_b25_fifty_at_once_make_one_run_and_all_are_told_of_it() -> None:
    def caller(number: int) -> Callable[[], Any]:
        def call() -> Any:
            with transaction.atomic():
                note(f"before {number}")
                result = keyed.enqueue(number)
                note(f"after {number}")
            return result

        return call

    results = at_once([caller(number) for number in range(CALLERS)])
    (there,) = runs()
    assert [result.id for result in results] == [there] * CALLERS
    assert sorted(result.created for result in results) == [False] * (CALLERS - 1) + [True]
    (made,) = (number for number, result in enumerate(results) if result.created)
    assert {tuple(result.args) for result in results} == {(made,)}
    assert noted() == {f"{when} {number}" for when in ("before", "after") for number in range(CALLERS)}


def test_b25_half_of_fifty_roll_back_and_the_rest_are_told_of_one_that_is_there() -> None:
    def caller(number: int) -> Callable[[], Any]:
        def call() -> Any:
            with transaction.atomic():
                result = keyed.enqueue(number)
                note(f"after {number}")
                if number % 2:
                    transaction.set_rollback(True)
            return result

        return call

    results = at_once([caller(number) for number in range(CALLERS)])
    (there,) = runs()
    kept = results[::2]
    assert {result.id for result in kept} == {there}
    assert sum(result.created for result in kept) == 1
    assert noted() == {f"after {number}" for number in range(0, CALLERS, 2)}


def test_b25_batches_with_the_same_keys_in_any_order_do_not_block_each_other(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    """One comes from the left and one from the right, and between them stands a third: when that one goes, each would
    have what the other wants next."""
    third, left = callers
    right = Caller()
    third.begin()
    third.do(tasks.add.using(key="between").enqueue, 0)
    keys = ["left", "between", "right"]
    batch = [tasks.add.using(key=key).bind(key) for key in keys]
    mirrored = [tasks.add.using(key=key).bind(key) for key in reversed(keys)]
    answers = [left.start(enqueue_many, batch), right.start(enqueue_many, mirrored)]
    try:
        wait_until(lambda: left.is_waiting and right.is_waiting)
        third.roll_back()
        one, another = (answer.result(timeout=60) for answer in answers)
    finally:
        right.close()
    assert [result.id for result in one] == [result.id for result in reversed(another)]
    assert {result.id for result in one} == set(runs())
    assert sorted([one[0].created, another[0].created]) == [False, True]
    assert {result.created for result in one} == {one[0].created}  # one of them came first with all
    assert {result.created for result in another} == {another[0].created}


def test_b25_a_key_twice_in_one_batch_is_one_run_and_the_first_of_them() -> None:
    first, second, third = enqueue_many([keyed.bind(1), keyed.bind(2), tasks.add.bind(3)])
    assert (first.id, first.created) == (second.id, True)
    assert (second.created, second.args, third.created) == (False, [1], True)
    assert runs() == [first.id, third.id]


# Transactions that see one moment only


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_b25_a_run_that_the_snapshot_does_not_show_is_a_clear_error(
    callers: tuple[Caller, Caller], isolation: str
) -> None:
    """The other's run can be neither seen nor made again. No answer would be true, and the next try has one."""
    first, second = callers
    second.begin(isolation)
    there = first.do(keyed.enqueue, 1)
    second.do(note, "lost")
    with pytest.raises(Unavailable, match="serialize"):
        second.do(keyed.enqueue, 2)
    second.roll_back()
    assert runs() == [there.id]
    assert noted() == set()
    second.begin(isolation)
    again = second.do(keyed.enqueue, 2)
    second.do(note, "kept")
    second.commit()
    assert (again.id, again.created) == (there.id, False)
    assert noted() == {"kept"}


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("ends", ["commit", "roll_back"])
def test_b25_a_snapshot_that_waits_for_the_first_has_an_answer_only_if_that_rolls_back(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any], isolation: str, ends: str
) -> None:
    first, second = callers
    second.begin(isolation)
    first.begin()
    there = first.do(keyed.enqueue, 1)
    answer = second.start(keyed.enqueue, 2)
    wait_until(lambda: second.is_waiting)
    getattr(first, ends)()
    if ends == "commit":
        with pytest.raises(Unavailable, match="serialize"):
            answer.result(timeout=60)
        second.roll_back()
        assert runs() == [there.id]
    else:
        result = answer.result(timeout=60)
        second.commit()
        assert result.created
        assert runs() == [result.id]


def test_b25_a_holder_that_ended_behind_the_snapshot_is_not_taken_for_open(callers: tuple[Caller, Caller]) -> None:
    """In its snapshot the key is held; it is free, though, and the new run is what the caller asked for."""
    _, second = callers
    keyed.enqueue(1)
    holder = claim()
    second.begin("REPEATABLE READ")
    complete(holder)
    result = second.do(keyed.enqueue, 2)
    second.commit()
    assert result.created
    assert runs() == [str(holder.id), result.id]
    assert get_run(key=KEY).id == UUID(result.id)


# The holder ends at this very moment


def test_b25_a_holder_whose_end_is_being_committed_is_waited_for(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    """A hundred times: the completion first, then the enqueue, then the commit of both."""
    first, second = callers
    before = keyed.enqueue(0).id
    for _ in range(ROUNDS):
        holder = claim()
        assert str(holder.id) == before
        first.begin()
        first.do(complete, holder)
        answer = second.start(keyed.enqueue, 1)
        wait_until(lambda: second.is_waiting)
        first.commit()
        result = answer.result(timeout=60)
        assert (result.created, result.id != before) == (True, True)
        before = result.id
    assert runs()[-1] == before
    assert len(runs()) == ROUNDS + 1
    assert Run.objects.filter(status=Status.SUCCEEDED).count() == ROUNDS


def test_b25_a_holder_whose_end_is_rolled_back_still_has_the_key(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    first, second = callers
    keyed.enqueue(0)
    holder = claim()
    first.begin()
    first.do(complete, holder)
    answer = second.start(keyed.enqueue, 1)
    wait_until(lambda: second.is_waiting)
    first.roll_back()
    result = answer.result(timeout=60)
    assert (result.id, result.created) == (str(holder.id), False)
    complete(holder)


def test_b25_an_enqueue_that_found_the_holder_does_not_hold_up_its_end(callers: tuple[Caller, Caller]) -> None:
    """A hundred times: the enqueue first, and while its transaction is open the completion, which waits for nobody."""
    first, _ = callers
    for number in range(ROUNDS):
        assert keyed.enqueue(number).created
        holder = claim()
        first.begin()
        answer = first.do(keyed.enqueue, "again")
        complete(holder)
        first.do(note, f"{number}")
        first.commit()
        assert (answer.id, answer.created) == (str(holder.id), False)
    assert Run.objects.filter(status=Status.SUCCEEDED).count() == ROUNDS == Run.objects.count()
    assert len(noted()) == ROUNDS


def test_b25_whoever_is_first_at_that_moment_the_answer_is_true(callers: tuple[Caller, Caller]) -> None:
    """A hundred times, nobody waiting for anybody; the order is the machine's."""
    first, second = callers
    barrier = threading.Barrier(2)

    def together(function: Callable[..., Any], *arguments: Any) -> Any:
        barrier.wait(timeout=60)
        return function(*arguments)

    for number in range(ROUNDS):
        assert keyed.enqueue(number).created
        holder = claim()
        ended = first.start(together, complete, holder)
        answer = second.start(together, keyed.enqueue, "again")
        ended.result(timeout=60)
        result = answer.result(timeout=60)
        assert result.created == (result.id != str(holder.id))
        assert Run.objects.get(pk=holder.id).status == Status.SUCCEEDED
        open_ones = [str(pk) for pk in Run.objects.filter(status__in=OPEN).values_list("pk", flat=True)]
        assert open_ones == ([result.id] if result.created else [])
        for _ in open_ones:
            complete(claim())


def test_b25_a_holder_that_ends_between_the_insert_and_the_look_leaves_no_gap(callers: tuple[Caller, Caller]) -> None:
    other, _ = callers
    keyed.enqueue(0)
    holder = claim()
    with transaction.atomic():
        with right_after("insert_runs", lambda: other.do(complete, holder)):
            result = keyed.enqueue(1)
        note("after")
    assert result.created
    assert runs() == [str(holder.id), result.id]
    assert noted() == {"after"}


def test_b25_a_third_that_takes_the_key_in_between_is_the_answer(callers: tuple[Caller, Caller]) -> None:
    """The key was held, then free, then held by another: the answer is that other one, and both know of it."""
    other, _ = callers
    keyed.enqueue(0)
    holder = claim()
    third = []

    def change_hands() -> None:
        other.do(complete, holder)
        third.append(other.do(keyed.enqueue, 3))

    with right_after("insert_runs", change_hands):
        result = keyed.enqueue(1)
    assert third[0].created
    assert (result.id, result.created, result.args) == (third[0].id, False, [3])


def test_b25_a_kept_key_whose_time_is_over_is_taken_by_one_of_two(
    callers: tuple[Caller, Caller], wait_until: Callable[..., Any]
) -> None:
    """Its holder ended long ago; whoever takes the key from it first has it, and the second is told of that one."""
    first, second = callers
    keyed.using(key_for=DAY).enqueue(0)
    holder = claim()
    complete(holder)
    Run.objects.update(key_until=Run.objects.get().finished_at)
    first.begin()
    taken = first.do(keyed.enqueue, 1)
    answer = second.start(keyed.enqueue, 2)
    wait_until(lambda: second.is_waiting)
    first.commit()
    result = answer.result(timeout=60)
    assert (taken.created, result.created, result.id) == (True, False, taken.id)
    assert runs() == [str(holder.id), taken.id]


def test_b25_a_holder_that_is_deleted_between_the_look_and_the_answer_is_no_error(
    callers: tuple[Caller, Caller],
) -> None:
    """Somebody empties the list in the admin at that moment. What the caller gets is there, or is a clear error."""
    other, _ = callers
    holder = keyed.enqueue(0)
    with transaction.atomic():
        note("before")
        with right_after("held_runs", lambda: other.do(Run.objects.filter(pk=holder.id).delete)):
            try:
                result = keyed.enqueue(1)
            except Unavailable:
                result = None
        note("after")
    assert noted() == {"before", "after"}
    assert runs() == ([] if result is None else [result.id])


def test_b25_no_error_of_the_database_is_let_out_when_a_row_is_broken_otherwise() -> None:
    """Only a double is nothing to talk about: what else the database refuses is raised, and not taken for one."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE cronoq_run ADD CONSTRAINT planted CHECK (args::text <> '[\"poison\"]')")
    try:
        with pytest.raises(IntegrityError, match="planted"):
            keyed.enqueue("poison")
        with pytest.raises(IntegrityError, match="planted"), transaction.atomic():
            note("lost")
            enqueue_many([tasks.add.bind(1), tasks.add.bind("poison")])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE cronoq_run DROP CONSTRAINT planted")
    assert runs() == []
    assert noted() == set()
    assert keyed.enqueue("poison").created
