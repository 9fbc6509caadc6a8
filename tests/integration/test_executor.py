"""What a task leaves behind in its thread's connection."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from cronoq_django.worker.executor import clear_connections

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
    thread.join(20)
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
