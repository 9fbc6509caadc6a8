"""The tables, one a file."""

from cronoq_django.models.attempt import Attempt
from cronoq_django.models.coordinator import Coordinator
from cronoq_django.models.dependency import Dependency
from cronoq_django.models.job import Job
from cronoq_django.models.job_change import JobChange
from cronoq_django.models.job_revision import JobRevision
from cronoq_django.models.job_state import JobState
from cronoq_django.models.leader import Leader
from cronoq_django.models.leader_term import LeaderTerm
from cronoq_django.models.partition_assignment import PartitionAssignment
from cronoq_django.models.pool import Pool
from cronoq_django.models.run import Run
from cronoq_django.models.run_detail import RunDetail
from cronoq_django.models.script import Script
from cronoq_django.models.stage import Stage
from cronoq_django.models.stat import Stat
from cronoq_django.models.unsettled import Unsettled
from cronoq_django.models.worker import Worker

__all__ = [
    "Attempt",
    "Coordinator",
    "Dependency",
    "Job",
    "JobChange",
    "JobRevision",
    "JobState",
    "Leader",
    "LeaderTerm",
    "PartitionAssignment",
    "Pool",
    "Run",
    "RunDetail",
    "Script",
    "Stage",
    "Stat",
    "Unsettled",
    "Worker",
]
