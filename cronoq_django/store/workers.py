"""Workers: register, heartbeat, end."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from cronoq_django.models.choices import WorkerStatus
from cronoq_django.models.fields import clean_text, dump_json
from cronoq_django.store.leadership import FencedTransaction
from cronoq_django.store.statements import Cursor, count, run


def register_worker(
    cursor: Cursor,
    *,
    worker: UUID,
    name: str,
    host: str,
    process_id: int,
    version: str,
    pools: Mapping[str, int],
    scripts: Sequence[str],
) -> None:
    """Register a worker process, if it is not. `pools`: concurrency by pool."""
    count(
        cursor,
        "register_worker",
        id=worker,
        name=clean_text(name, 200),
        host=clean_text(host, 200),
        process_id=process_id,
        version=version,
        pools=dump_json(dict(pools)),
        concurrency=sum(pools.values()),
        scripts=list(scripts),
    )


def heartbeat_worker(cursor: Cursor, *, worker: UUID, status: WorkerStatus) -> bool:
    """A worker's heartbeat, or its end (`stopped`, `lost`). Whether somebody asked it to drain."""
    rows = run(cursor, "heartbeat_worker", id=worker, status=status)
    return bool(rows and rows[0][0])


def someone_knows(cursor: Cursor, script: str, *, silence: timedelta) -> bool:
    """Whether a worker that was heard of within `silence` knows the script."""
    return bool(run(cursor, "someone_knows", script=script, silence=silence)[0][0])


def lose_workers(tx: FencedTransaction, *, silence: timedelta) -> int:
    """Mark workers and coordinators as lost whose last heartbeat is older than `silence`; how many."""
    return int(run(tx, "lose_workers", silence=silence)[0][0])
