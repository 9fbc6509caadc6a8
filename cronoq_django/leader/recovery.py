"""Recovery: the first thing in each term, fenced like everything else.

What a predecessor may have left: jobs changed but not planned, and runs whose owners vanished meanwhile.
"""

from cronoq_django.leader.election import Identity
from cronoq_django.leader.fence import Fence
from cronoq_django.store import leadership, runs, slots

BATCH = 1000


def recover(fence: Fence, identity: Identity) -> dict[str, int]:
    """Set right what the predecessor left, and write down the new term; counts by what was done."""
    taken_back = 0
    while True:
        with fence.transaction() as tx:
            batch = len(runs.rescue(tx, limit=BATCH))
        taken_back += batch
        if batch < BATCH:
            break
    with fence.transaction() as tx:
        recovered = {"runs taken back": taken_back, "jobs to plan": slots.add_missing_changes(tx)}
        leadership.open_term(tx, coordinator=identity.id, host=identity.host, recovered=recovered)
    return recovered
