"""Recovery: the first thing in each term, fenced like everything else.

What a predecessor may have left: jobs changed but not planned. Runs whose owners vanished meanwhile are for the
`rescue` stage, which gives living workers the time to renew their leases first.
"""

from cronoq_django.leader.election import Identity
from cronoq_django.leader.fence import Fence
from cronoq_django.store import leadership, slots


def recover(fence: Fence, identity: Identity) -> dict[str, int]:
    """Set right what the predecessor left, and write down the new term; counts by what was done."""
    with fence.transaction() as tx:
        recovered = {"jobs to plan": slots.add_missing_changes(tx)}
        leadership.open_term(tx, coordinator=identity.id, host=identity.host, recovered=recovered)
    return recovered
