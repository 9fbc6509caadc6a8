"""The answer to a COMMIT is lost with the connection: nobody knows whether it was written, and it was.

Written again, it would count twice; given up, it would be lost. A worker reads back what it owns: what it does not know
of goes back, uncharged; an outcome that is there already is refused when it is sent again. A leader steps down, and who
leads next reads what is there.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from cronoq_django.models import Attempt, LeaderTerm, Run, Worker
from cronoq_django.models.choices import Outcome, Status
from cronoq_django.tasks.enqueue import enqueue_many
from tests import tasks

from .conftest import Fleet, database_url
from .proxy import TcpProxy
from .runs import finished, lines, witnessed_claims
from .slots import assert_one_run_a_slot, epoch, every_second

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

TIMES = 25  # of each
EVENTS = {
    "claimed": "UPDATE ON cronoq_run FOR EACH ROW WHEN (OLD.claim IS NULL AND NEW.claim IS NOT NULL)",
    "completed": "UPDATE ON cronoq_run FOR EACH ROW WHEN (NEW.claim IS NULL AND NEW.attempts > OLD.attempts)",
    "fired": "INSERT ON cronoq_run FOR EACH ROW WHEN (NEW.trigger = 'slot')",
}


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[TcpProxy]:
    """To a database that tells in each transaction what it has done."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE NOTICE 'told: %', TG_ARGV[0]; RETURN NULL; END $$"
        )
        for event, when in EVENTS.items():
            cursor.execute(f"CREATE TRIGGER tell_{event} AFTER {when} EXECUTE FUNCTION tell('{event}')")
    with TcpProxy(database_url()) as proxy:
        yield proxy
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION tell() CASCADE")


@pytest.mark.parametrize("event", ["claimed", "completed"])
def test_a_worker_that_does_not_hear_of_its_commit_executes_nothing_twice_and_loses_nothing(
    fleet: Fleet, wait_until: Callable[..., Any], tmp_path: Path, proxy: TcpProxy, event: str
) -> None:
    """A run whose end was not heard of was executed again; one whose claim was not, stayed running, or was charged.

    Half of the runs have one attempt and no more; each fourth one fails at first, and its retry is not heard of.
    """
    path = tmp_path / "lines"
    workers = [fleet.worker(DATABASE_URL=proxy.url) for _ in range(3)]
    once: list[Any] = []
    twice: list[Any] = []
    with witnessed_claims() as claims:
        for number in range(TIMES):
            proxy.lose_a_commit(f"told: {event}".encode())
            bound = [
                tasks.count_line_twice.bind(str(path), f"{number}-{n}")
                if n % 4 == 0
                else tasks.count_line.using(max_attempts=1 + n % 4).bind(str(path), f"{number}-{n}")
                for n in range(20)
            ]
            results = enqueue_many(bound)
            twice += results[::4]
            once += [result for n, result in enumerate(results) if n % 4]
            wait_until(lambda number=number: proxy.lost == number + 1, what="an answer is lost")
        wait_until(finished(*once, *twice))
        given_back = len(claims()) - len(once) - 2 * len(twice)
    assert Counter(Counter(lines(path)).values()) == {1: len(once), 2: len(twice)}
    for results, attempts in ((once, 1), (twice, 2)):
        rows = Run.objects.filter(pk__in=[result.id for result in results])
        assert set(rows.values_list("status", "attempts", "reason")) == {(Status.SUCCEEDED, attempts, "")}
    assert sorted(Attempt.objects.values_list("run", "number", "outcome")) == sorted(
        (UUID(result.id), *attempt) for result in twice for attempt in ((1, Outcome.FAILED), (2, Outcome.SUCCEEDED))
    )
    refused = sum(worker.output.count("was refused") for worker in workers)
    print(f"{proxy.lost} answers lost: {refused} outcomes sent again, {given_back} claims given back")
    assert (given_back if event == "claimed" else refused) >= TIMES
    assert Worker.objects.count() == 3  # each went on under its name
    assert all(worker.is_alive for worker in workers)


def test_a_leader_that_does_not_hear_of_its_commit_fires_no_slot_twice_and_leaves_none_out(
    fleet: Fleet, wait_until: Callable[..., Any], proxy: TcpProxy
) -> None:
    jobs = every_second(2)
    leader = fleet.leader(DATABASE_URL=proxy.url)
    for number in range(5):
        proxy.lose_a_commit(b"told: fired")
        wait_until(lambda number=number: proxy.lost == number + 1, what="an answer is lost")
        wait_until(lambda number=number: epoch() >= number + 2, what="it leads again")
    fired = Run.objects.count()
    wait_until(lambda: Run.objects.count() > fired, what="it goes on")
    assert_one_run_a_slot(jobs)
    assert LeaderTerm.objects.count() >= 6
    assert leader.is_alive
