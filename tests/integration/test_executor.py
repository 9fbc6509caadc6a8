"""What a task leaves behind in its thread's connection, and what its policies make of its errors."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from cronoq_django import registry
from cronoq_django.models import Run
from cronoq_django.models.choices import Reason, Status
from cronoq_django.testing import run_pending
from cronoq_django.worker.connections import clear_connections
from tests import tasks

pytestmark = pytest.mark.django_db(transaction=True)


def in_a_thread(function: Callable[[], Any]) -> Any:
    """A thread has connections of its own, as in a worker; here they are kept between tasks."""
    answers: list[Any] = []

    def work() -> None:
        connection.settings_dict = {**connection.settings_dict, "CONN_MAX_AGE": None}
        try:
            answers.append(function())
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    return answers[0]


def show(*settings: str) -> list[str]:
    with connection.cursor() as cursor:
        return [cursor.execute(f"SHOW {setting}") and cursor.fetchone()[0] for setting in settings]


def test_settings_of_one_task_are_gone_for_the_next() -> None:
    """`SET statement_timeout = 1` in one task made the next ones on that thread fail."""

    def leak() -> Any:
        names = ("statement_timeout", "TimeZone", "search_path")
        before, session = show(*names), connection.connection
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 1234; SET TimeZone = 'Asia/Tokyo'; SET search_path = pg_catalog")
        clear_connections()
        return connection.connection is session, before == show(*names)

    assert in_a_thread(leak) == (True, True)


@pytest.mark.parametrize("how", ["begin", "atomic", "failed"])
def test_a_transaction_left_open_is_rolled_back(how: str) -> None:
    def leave() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if how == "atomic":
            transaction.atomic().__enter__()
        else:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO cronoq_pool (name) VALUES ('left')")
            if how == "failed":
                with pytest.raises(IntegrityError):
                    cursor.execute("INSERT INTO cronoq_pool (name) VALUES ('left')")
        clear_connections()
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM cronoq_pool")
            return connection.in_atomic_block, cursor.fetchone()[0]

    assert in_a_thread(leave) == (False, 0)


@pytest.mark.parametrize(
    ("raises", "attempts"),
    [("TimeoutError", 2), ("ConnectionRefusedError", 1), ("ValueError", 1), ("KeyboardInterrupt", 2), ("Retry", 2)],
)
def test_the_task_says_after_which_errors_it_is_tried_again(raises: str, attempts: int) -> None:
    tasks.raise_one.using(max_attempts=2, backoff=tasks.AT_ONCE).enqueue(raises)
    assert [record.attempts for record in run_pending()] == list(range(1, attempts + 1))
    run = Run.objects.get()
    assert (run.status, run.reason) == (Status.FAILED, Reason.ERROR)


def test_a_run_under_a_former_name_is_executed() -> None:
    """Its code was moved while rows waited: all of them failed."""
    tasks.raise_one.using(max_attempts=1).enqueue("ValueError")
    Run.objects.update(script="tests.tasks.raised")
    (record,) = run_pending()
    assert record.error == "ValueError: ValueError"
    assert {"tests.raises", "tests.tasks.raised"} <= set(registry.names())
    assert registry.missing("tests.tasks.raised") == ""
