"""The fleet, on an alias: which processes work for the cluster, who leads them, and what is due in which partitions.

`register_worker` and `heartbeat_worker` are for workers other than `cronoq_worker`, which calls those that take a
cursor, in `store/workers.py`.
"""

import os
import socket
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet
from django.db.models.functions import Now

from cronoq_django.errors import NotFound
from cronoq_django.models import JobState, Leader, PartitionAssignment, Worker
from cronoq_django.models.choices import WorkerStatus
from cronoq_django.models.ids import uuid7
from cronoq_django.models.partition_assignment import PARTITIONS
from cronoq_django.store import clock, workers
from cronoq_django.store.arguments import identifier, items, mapping, moment, number, text, texts, word
from cronoq_django.store.session import alias_of, on_alias

MOST_CONCURRENCY = 1000
MOST_IDS = 10_000


def register_worker(
    name: str,
    *,
    pools: Mapping[str, int],
    worker: UUID | None = None,
    host: str | None = None,
    process_id: int | None = None,
    version: str = "",
    scripts: Collection[str] = (),
    using: str | None = None,
) -> UUID:
    """Register a process as a worker; its id, new unless one is given. One that is registered stays as it is.

    `pools`: how many runs of each it executes at a time, 1 to 1,000; `scripts`: the names it knows; `host` and
    `process_id`: this host's and process's own unless given. Raises TypeError or ValueError, naming the argument.
    """
    given = mapping("pools", pools)
    pools = {text("pools", pool, 100): number(f"pools[{pool!r}]", n, 1, MOST_CONCURRENCY) for pool, n in given.items()}
    worker = uuid7() if worker is None else identifier("worker", worker)
    with on_alias(using) as cursor:
        workers.register_worker(
            cursor,
            worker=worker,
            name=text("name", name, 200),
            host=text("host", socket.gethostname() if host is None else host, 200),
            process_id=number("process_id", os.getpid() if process_id is None else process_id, 0, 2**31 - 1),
            version=text("version", version, 50, is_optional=True),
            pools=pools,
            scripts=texts("scripts", scripts, 500),
        )
    return worker


def heartbeat_worker(worker: UUID, *, status: str = WorkerStatus.ONLINE, using: str | None = None) -> bool:
    """A worker is alive, and "online" or "draining"; or it has "stopped", or is "lost". Whether it is asked to drain.

    As long as it is heard of once in a lease, the leader takes none of its runs back. Raises NotFound; ValueError.
    """
    id_, status = identifier("worker", worker), WorkerStatus(word("status", status, WorkerStatus.values))
    with on_alias(using) as cursor:
        workers.heartbeat_worker(cursor, worker=id_, status=status)
        for asked_at in list_workers(using=using).filter(pk=id_).values_list("drain_requested_at", flat=True):
            return asked_at is not None
    raise NotFound(f"there is no worker {id_}")


def list_workers(*, status: str | None = None, using: str | None = None) -> QuerySet[Worker]:
    """Workers, the newest first; also those that have ended, for a month."""
    found = Worker.objects.using(alias_of(using)).order_by("-started_at", "-id")
    return found if status is None else found.filter(status=word("status", status, WorkerStatus.values))


def get_leader(*, using: str | None = None) -> Leader | None:
    """Who leads, or led last; None if nobody ever has. Alive is who has `renewed_at` less than `ttl` ago."""
    return Leader.objects.using(alias_of(using)).first()


def list_partition_assignments(*, using: str | None = None) -> QuerySet[PartitionAssignment]:
    """Which coordinator ticks which of the 64 partitions, by number; none are listed that nobody was ever given."""
    return PartitionAssignment.objects.using(alias_of(using)).order_by("partition")


def find_due_job_ids_in_partitions(
    partitions: Collection[int], *, now: datetime | None = None, limit: int = 1000, using: str | None = None
) -> list[UUID]:
    """The ids of up to `limit` (10,000 at most) jobs of these partitions (0 to 63) with a slot that is to be fired at
    `now` (an aware datetime; default: the database's clock), the longest due first.

    Reads only: firing is for the leader, who locks it first. Raises TypeError or ValueError, naming the argument.
    """
    at: Any = clock.frozen or Now() if now is None else moment("now", now)
    due = _planned(partitions, using).filter(next_run_at__lte=at)
    return list(due.values_list("job_id", flat=True)[: number("limit", limit, 1, MOST_IDS)])


def min_next_run_at_in_partitions(partitions: Collection[int], *, using: str | None = None) -> datetime | None:
    """When the next slot of these partitions (0 to 63) is due, or was, if it has not been fired; None: there is none.

    Raises TypeError or ValueError, naming the argument.
    """
    return _planned(partitions, using).values_list("next_run_at", flat=True).first()


def _planned(partitions: Collection[int], using: str | None) -> QuerySet[JobState]:
    """The states of jobs that will be fired, the earliest first. Relies on: cronoq_job_state_due."""
    wanted = [number("partitions", one, 0, PARTITIONS - 1) for one in items("partitions", partitions)]
    states = JobState.objects.using(alias_of(using)).filter(partition__in=wanted, next_run_at__isnull=False, error="")
    fired = states.filter(job__enabled=True, planned_revision=F("job__schedule_revision"))
    return fired.order_by("next_run_at", "job_id")
