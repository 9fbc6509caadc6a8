"""A heartbeat as rare as the lease was long: whatever held it up for a moment, living workers lost their runs.

Here nobody can set one. It follows the lease, and what is renewed has most of its lease left.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from django.db import connection

from cronoq_django.checks import check_settings
from cronoq_django.conf import conf
from tests import tasks
from tests.fault.conftest import Fleet
from tests.fault.runs import finished, lines, status_of


@pytest.mark.parametrize("name", ["HEARTBEAT", "HEARTBEAT_INTERVAL", "RENEW"])
def test_b19_a_heartbeat_cannot_be_set(settings: Any, name: str) -> None:
    settings.CRONOQ = {**settings.CRONOQ, "LEASE": 30, name: 15}
    (error,) = check_settings()
    assert (error.id, name in error.msg) == ("cronoq.E001", True)


def test_b19_a_lease_too_short_for_its_heartbeats_is_refused(settings: Any) -> None:
    settings.CRONOQ = {**settings.CRONOQ, "LEASE": 0.9}
    (error,) = check_settings()
    assert (error.id, "LEASE" in error.msg) == ("cronoq.E001", True)
    settings.CRONOQ = {**settings.CRONOQ, "LEASE": 1}
    assert check_settings() == []
    assert conf().lease == timedelta(seconds=1)


@contextmanager
def renewals() -> Iterator[Callable[[], list[timedelta]]]:
    """What was left of a lease each time that one was renewed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE renewal (rest interval); "
            "CREATE FUNCTION renewal() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN "
            "INSERT INTO renewal VALUES (OLD.lease_expires_at - clock_timestamp()); RETURN NULL; END $$; "
            "CREATE TRIGGER renewal AFTER UPDATE ON cronoq_run FOR EACH ROW "
            "WHEN (NEW.claim = OLD.claim AND NEW.lease_expires_at > OLD.lease_expires_at) EXECUTE FUNCTION renewal()"
        )

    def rests() -> list[timedelta]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT rest FROM renewal")
            return [rest for (rest,) in cursor.fetchall()]

    try:
        yield rests
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION renewal() CASCADE; DROP TABLE renewal")


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(300)
def test_b19_leases_are_renewed_while_more_than_half_of_them_is_left(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    """As a rule: on a busy machine one may come late."""
    with renewals() as rests:
        fleet.worker(CRONOQ_LEASE="1")
        result = tasks.outlive.enqueue(str(tmp_path), "success")
        wait_until(lambda: lines(tmp_path / "lines"))
        wait_until(lambda: len(rests()) >= 5, what="it is renewed")
        assert status_of(result) == "running"
        (tmp_path / "end-1").touch()
        wait_until(finished(result))
        assert median(rests()) > timedelta(seconds=0.5)
