"""Jitter: the jobs of one minute, spread out."""

from datetime import datetime, timedelta
from hashlib import blake2b
from uuid import UUID

from .errors import ScheduleError
from .moment import utc

MICROSECOND = timedelta(microseconds=1)


def jittered(job_id: UUID, slot: datetime, jitter: timedelta) -> datetime:
    """When the run of this slot is due: the slot plus an offset in [0, jitter), in UTC.

    The offset comes from a hash of job and slot, so a leader that repeats a step whose commit was lost, or another one
    that takes over, finds the same moment again. It differs from slot to slot: no job is always the late one.
    """
    if jitter < timedelta(0):
        raise ScheduleError("jitter can't be negative: it only ever delays", field="jitter")
    due = utc(slot, "slot")
    if not jitter:
        return due
    digest = blake2b(job_id.bytes + due.isoformat().encode(), digest_size=8).digest()
    offset = MICROSECOND * (int.from_bytes(digest) * (jitter // MICROSECOND) >> 64)
    try:
        return due + offset
    except OverflowError:
        return due
