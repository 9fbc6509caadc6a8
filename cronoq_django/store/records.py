"""Records: a run as plain values, to be handed out; times are Unix nanoseconds."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cronoq_django.errors import NotFound
from cronoq_django.models import Run
from cronoq_django.store.session import alias_of
from cronoq_django.store.submit import key_hash

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """What is known of a run. The names are the columns of Run; all times are Unix nanoseconds (`int`), or None."""

    id: UUID
    trigger: str
    script: str
    args: Any
    kwargs: Any
    pool: str
    priority: int
    status: str
    reason: str
    key: str | None
    tags: tuple[str, ...]
    actor: str
    job_id: UUID | None
    job_name: str
    parent_id: UUID | None
    root_id: UUID | None
    retry_of_id: UUID | None
    attempts: int
    max_attempts: int
    result: Any
    error: str
    scheduled_for: int | None
    created_at: int
    due_at: int
    expires_at: int | None
    started_at: int | None
    finished_at: int | None
    cancel_requested_at: int | None
    lease_expires_at: int | None

    @property
    def is_finished(self) -> bool:
        return self.finished_at is not None


def get_run(id: Any = None, *, key: str | None = None, using: str | None = None) -> TaskRecord:  # noqa: A002
    """The run of an id; or of a key: the one that holds it, else the newest that had it.

    Raises NotFound; ValueError for what is no id.
    """
    if (id is None) == (key is None):
        raise TypeError("get_run takes an id, or key=…")
    runs = Run.objects.using(alias_of(using))
    if key is not None:
        had = runs.filter(key_hash=key_hash(key))
        found = had.filter(key_held=True).first() or had.order_by("-id").first()
    else:
        found = runs.filter(pk=run_id(id)).first()
    if found is None:
        raise NotFound(f"there is no run {id}" if key is None else f"no run has the key {key!r}")
    return record(found)


def record(run: Run) -> TaskRecord:
    """A row as a record."""
    values = {name: getattr(run, name) for name in TaskRecord.__slots__}
    return TaskRecord(**{name: _plain(name, value) for name, value in values.items()})


def run_id(run: Any) -> UUID:
    """The id of a run, given as a record, a row, a result, a bound task, an id or its text. Raises ValueError."""
    given = getattr(run, "id", run)
    try:
        return given if isinstance(given, UUID) else UUID(str(given))
    except ValueError:
        raise ValueError(f"{run!r} is no run, and no id of one") from None


def nanoseconds(moment: datetime) -> int:
    """An aware datetime as Unix nanoseconds, exactly."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return nanoseconds(value)
    return tuple(value or ()) if name == "tags" else value
