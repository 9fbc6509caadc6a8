"""The stages: the leader's duties, in the order of one round. One file a duty, each with one verb, `step`."""

from datetime import datetime

from cronoq_django.leader.stage import Stage
from cronoq_django.leader.stages.admit import Admit
from cronoq_django.leader.stages.expire import Expire
from cronoq_django.leader.stages.fire import Fire
from cronoq_django.leader.stages.pause import Pause
from cronoq_django.leader.stages.plan import Plan
from cronoq_django.leader.stages.prune import Prune
from cronoq_django.leader.stages.quarantine import Quarantine
from cronoq_django.leader.stages.rescue import Rescue
from cronoq_django.leader.stages.settle import Settle
from cronoq_django.leader.stages.stage import StageRuns
from cronoq_django.leader.stages.sync import Sync
from cronoq_django.leader.stages.workers import Workers


def all_stages(*, declared_at: datetime) -> list[Stage]:
    """Every duty in order. `declared_at`: when this process registered, which dates its declarations."""
    return [
        Sync(declared_at),
        Pause(),
        Plan(),
        Fire(),
        StageRuns(),
        Admit(),
        Settle(),
        Expire(),
        Quarantine(),
        Rescue(),
        Workers(),
        Prune(),
    ]
