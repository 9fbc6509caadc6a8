"""Records: a run as plain values, to be made and handed out; times are Unix nanoseconds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import Duplicate, NotFound
from cronoq_django.models import Run
from cronoq_django.models.fields import TEXT_LIMIT, dump_json
from cronoq_django.models.ids import uuid7
from cronoq_django.store.arguments import identifier, items, mapping, moment, number, span, text, texts
from cronoq_django.store.runs import MOST_ATTEMPTS, NewRun
from cronoq_django.store.session import alias_of, on_alias
from cronoq_django.store.submit import key_hash, submit_runs

LONGEST_TAG = 500  # characters: the index takes 2,700 bytes
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
    timeout: timedelta | None
    attempts: int
    max_attempts: int
    worker_id: UUID | None
    claim: int | None  # while it is running: what its owner proves itself with
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


def create_run(
    script: str,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    pool: str = "default",
    priority: int = 0,
    due_at: datetime | None = None,
    expires_at: datetime | None = None,
    timeout: float | timedelta | None = None,
    max_attempts: int = 3,
    key: str | None = None,
    key_for: float | timedelta | None = None,
    tags: Collection[str] = (),
    actor: str = "",
    id: UUID | None = None,  # noqa: A002
    using: str | None = None,
) -> TaskRecord:
    """Make a run of a script, by its name, in the caller's transaction: for who has no task function to `enqueue`.

    `priority`: -100 to 100; `due_at`, `expires_at`: aware datetimes; `timeout`, `key_for`: seconds or timedelta. With
    an `id` of your own the call can be repeated after a lost answer: a run of that id is handed out as it is.

    Raises Duplicate if another run holds the `key`; Quarantined if the script is known here and does not take these
    arguments; TypeError or ValueError, naming the argument; Unavailable. Nothing is made then.
    """
    args, kwargs = items("args", args), mapping("kwargs", kwargs or {})
    values = {"args": dump_json(args, "args"), "kwargs": dump_json(kwargs, "kwargs")}
    if (size := sum(map(len, values.values()))) > conf().max_payload:
        raise ValueError(f"args and kwargs take {size:,} bytes of JSON, over CRONOQ['MAX_PAYLOAD']")
    if (known := registry.scripts().get(text("script", script, 500))) is not None:
        known.bind(args, kwargs)
    run = NewRun(
        id=uuid7() if id is None else identifier("id", id),
        script=script,
        pool=text("pool", pool, 100),
        priority=number("priority", priority, -100, 100),
        due_at=None if due_at is None else moment("due_at", due_at),
        expires_at=None if expires_at is None else moment("expires_at", expires_at),
        timeout=None if timeout is None else span("timeout", timeout, timedelta(microseconds=1)),
        max_attempts=number("max_attempts", max_attempts, 1, MOST_ATTEMPTS),
        key=None if key is None else text("key", key, TEXT_LIMIT),
        key_hash=None if key is None else key_hash(key),
        key_for=None if not key_for else span("key_for", key_for),
        tags=dump_json(texts("tags", tags, LONGEST_TAG)) if tags else None,
        actor=text("actor", actor, 200, is_optional=True) or None,
        args=values["args"],
        kwargs=values["kwargs"],
    )
    with on_alias(using) as cursor:
        made = submit_runs(cursor, [run])[run.id]
        if made.id != run.id:
            raise Duplicate(str(key), made.id)
        return get_run(made.id, using=using)


def get_run(id: Any = None, *, key: str | None = None, using: str | None = None) -> TaskRecord:  # noqa: A002
    """The run of an id; or of a key: the one that holds it, else the newest that had it.

    Raises NotFound; ValueError for what is no id.
    """
    if (id is None) == (key is None):
        raise TypeError("get_run takes an id, or key=…")
    runs = Run.objects.using(alias_of(using))
    if key is not None:
        had = runs.filter(key_hash=key_hash(text("key", key, TEXT_LIMIT)))
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
