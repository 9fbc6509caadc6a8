"""Retention, by hand: what the leader's `prune` removes by and by, at once.

No write of a leader's, but a person's, like any deletion: it decides nothing that a leader could decide otherwise.
Beside one, and beside others, it skips what they have locked. What holds a key, and what waiting runs depend on, stays.
"""

from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta

from cronoq_django.conf import conf
from cronoq_django.models.choices import TERMINAL, Status
from cronoq_django.store import clock, runs, slots
from cronoq_django.store.arguments import mapping, number, span, word
from cronoq_django.store.session import alias_of, connect, transaction

BATCH = 1000  # runs in a transaction
HISTORY = "history"


def prune(
    *, retention: Mapping[str, float | timedelta] | None = None, limit: int | None = None, using: str | None = None
) -> dict[str, int]:
    """Remove finished runs that are older than their retention, with all that belongs to them; how many, by status.
    Under "history": how many old revisions, terms, workers, coordinators and statistics.

    `retention`: by status, how long after its end a run stays, seconds or timedelta (default CRONOQ["RETENTION"]; no
    run of a status that is not named is removed); `limit`: at most so many runs. In batches of a thousand, each in a
    transaction of its own, on another session than the caller's.

    >>> prune(retention={"succeeded": timedelta(days=1)}, limit=100_000)

    Raises TypeError or ValueError, naming the argument; Unavailable.
    """
    given = mapping("retention", conf().retention if retention is None else retention)
    kept = {word("retention", one, TERMINAL): span(f"retention[{one!r}]", how) for one, how in given.items()}
    left = float("inf") if limit is None else number("limit", limit, 0, 2**63)
    removed = dict.fromkeys(kept, 0)
    with closing(connect(alias_of(using), name="cronoq prune", settings={"lock_timeout": "10s"})) as session:
        with transaction(session) as cursor:
            removed[HISTORY] = slots.prune_history(cursor)
        for status, how_long in kept.items():
            looked_at = BATCH
            while looked_at == BATCH and left:
                size = int(min(BATCH, left))
                with transaction(session) as cursor:
                    before = (clock.frozen or cursor.execute("SELECT clock_timestamp()").fetchall()[0][0]) - how_long
                    looked_at = runs.prune(cursor, status=Status(status), since=None, before=before, limit=size)
                    removed[status] += cursor.rowcount if looked_at else 0
                left -= looked_at
    return removed
