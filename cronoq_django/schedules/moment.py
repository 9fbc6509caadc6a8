"""Moments: aware datetimes, always handed on in UTC."""

from datetime import UTC, datetime, timedelta

from .errors import ScheduleError

SECOND = timedelta(seconds=1)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def utc(moment: datetime, field: str) -> datetime:
    """The same instant in UTC. One beyond the calendar's end (year 9999 seen from a western zone) becomes that end.

    A datetime without a zone is refused, not guessed: read in the host's zone it would be hours off on another host.
    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise ScheduleError(f"{field} must be a datetime with a time zone (e.g. UTC), not {moment!r}", field=field)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return LAST if moment.year > 1 else FIRST


def said(moment: datetime) -> str:
    """A moment as people read it: `2026-11-30 09:00:00Z`, with the fraction of a second if there is one."""
    return moment.astimezone(UTC).isoformat(sep=" ").removesuffix("+00:00") + "Z"
