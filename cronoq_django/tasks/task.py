"""Task: Django's Task with our options. Works alike on Django 5.2, 6.0 and 6.1."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self, TypedDict, Unpack
from uuid import UUID

from cronoq_django import registry
from cronoq_django.compat import DjangoTask, InvalidTask, TaskResult, TaskResultDoesNotExist, TaskResultMismatch
from cronoq_django.models.choices import Condition
from cronoq_django.models.fields import TEXT_LIMIT
from cronoq_django.schedules import Backoff
from cronoq_django.store import clock
from cronoq_django.store.arguments import moment, number, span, text, texts, word
from cronoq_django.store.records import LONGEST_TAG, run_id
from cronoq_django.store.runs import MOST_ATTEMPTS
from cronoq_django.tasks.bound import Bound

MAX_ATTEMPTS = 3


class OfAnotherTask(TaskResultMismatch, TaskResultDoesNotExist):
    """The result is another task's: Django 6 has a name for that, and before it there was no such result."""


class Options(TypedDict, total=False):
    """What can be said of a task where it is made, and of a single run with `using()`. Durations: seconds or timedelta.

    queue_name    the pool whose workers execute it
    priority      from -100 to 100; higher ones begin first
    backend       the alias in TASKS
    max_attempts  all attempts counted, also those lost with their worker (1: never again)
    timeout       an attempt that takes longer is ended as timed out
    backoff       the delays between attempts
    expires       a run that has not begun by then fails, reason `expired`: an aware datetime, or a timedelta
    key_for       how long after its end no other run gets its key (default: not at all)
    on_duplicate  if a run with its key is there: "return" that one (the default), or "raise" Duplicate
    tags          texts to find runs by
    actor         who or what asks for it
    """

    queue_name: str
    priority: int
    backend: str
    max_attempts: int
    timeout: float | timedelta | None
    backoff: Backoff
    expires: datetime | timedelta | None
    key_for: float | timedelta | None
    on_duplicate: str
    tags: Sequence[str]
    actor: str


class RunOptions(Options, total=False):
    """What can be said of a single run.

    run_after  the earliest time it begins: an aware datetime, or a timedelta from now
    key        a text: there is at most one open run with it in a cluster
    after      runs to wait for: results, records, bound tasks or ids
    on         how they must end: "success" (the default), "failure" or "any". One that ends otherwise skips this run
    """

    run_after: datetime | timedelta | None
    key: str | None
    after: Any
    on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(DjangoTask):
    """A task function with its options. `using()` gives a copy with others; `enqueue()` makes a run of it.

    script      the name that rows carry; by default module and qualified name
    aliases     names that rows may carry as well: those it had before
    retry_on    exceptions after which another attempt is made, if one is left
    give_up_on  those of them after which none is
    """

    script: str = ""
    aliases: tuple[str, ...] = ()
    max_attempts: int = MAX_ATTEMPTS
    timeout: timedelta | None = None
    backoff: Backoff = field(default_factory=Backoff)
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()
    expires: datetime | timedelta | None = None
    key: str | None = None
    key_for: timedelta | None = None
    on_duplicate: str = "return"
    tags: tuple[str, ...] = ()
    actor: str = ""
    after: tuple[UUID, ...] = ()
    on: str = Condition.SUCCESS

    def __post_init__(self) -> None:
        if isinstance(self.run_after, timedelta):
            self._set("run_after", _after(self.run_after))
        with _as_invalid():
            for name in ("timeout", "key_for"):
                self._set(name, None if getattr(self, name) is None else span(name, getattr(self, name)))
            for name in ("tags", "aliases"):
                self._set(name, tuple(texts(name, getattr(self, name), LONGEST_TAG)))
        for name in ("retry_on", "give_up_on"):
            self._set(name, _exceptions(name, getattr(self, name)))
        self._set("after", _ids(self.after))
        self._check()
        DjangoTask.__post_init__(self)  # not super(): a dataclass with slots is another class than the one written here
        registry.register(self, anew=False)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check(self) -> None:
        if isinstance(self.priority, bool) or not isinstance(self.priority, int | float):
            raise InvalidTask("priority must be a whole number.")
        with _as_invalid():
            number("max_attempts", self.max_attempts, 1, MOST_ATTEMPTS)
            for name, longest in (("queue_name", 100), ("script", 500), ("key", TEXT_LIMIT), ("actor", 200)):
                if (given := getattr(self, name)) is not None:
                    text("name" if name == "script" else name, given, longest, is_optional=True)
            word("on_duplicate", self.on_duplicate, ("return", "raise"))
            word("on", self.on, Condition.values)
            if self.expires is not None:
                (span if isinstance(self.expires, timedelta) else moment)("expires", self.expires)
            if self.run_after is not None:
                moment("run_after", self.run_after)
        if self.timeout is not None and not self.timeout:
            raise InvalidTask("timeout must be longer than nothing.")
        if not isinstance(self.backoff, Backoff):
            raise InvalidTask(f"backoff must be a Backoff, not {self.backoff!r}.")
        if self.key == "" or not self.queue_name:
            raise InvalidTask("key and queue_name must not be empty.")

    def using(self, **options: Unpack[RunOptions]) -> Self:  # type: ignore[override]
        """A copy with other options: see `Options` and `RunOptions`. None leaves one as it is. Raises InvalidTask."""
        changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        return replace(self, **changes)

    def bind(self, *args: Any, **kwargs: Any) -> Bound:
        """This task with arguments, as a member for `enqueue_many`. It has the id that its run will have."""
        return Bound(self, args, kwargs)

    def get_result(self, result_id: str) -> TaskResult:
        """The result of a run of this task. Raises TaskResultDoesNotExist, also (as TaskResultMismatch) for others'."""
        try:
            return DjangoTask.get_result(self, result_id)
        except TaskResultMismatch as error:
            raise OfAnotherTask(str(error)) from None

    async def aget_result(self, result_id: str) -> TaskResult:
        """See get_result()."""
        try:
            return await DjangoTask.aget_result(self, result_id)
        except TaskResultMismatch as error:
            raise OfAnotherTask(str(error)) from None

    @property
    def script_name(self) -> str:
        """The name that rows carry for this task."""
        return registry.script_name(self)


@contextmanager
def _as_invalid() -> Iterator[None]:
    """What an argument of the store can't be, an option can't be either."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"{error}.") from None


def _after(delay: timedelta) -> datetime:
    try:
        return clock.now() + delay
    except OverflowError:
        raise InvalidTask(f"run_after: {delay} from now is beyond the calendar.") from None


def _exceptions(name: str, values: Any) -> tuple[type[BaseException], ...]:
    classes: tuple[Any, ...] = tuple(values) if isinstance(values, list | tuple) else (values,)
    if not all(isinstance(value, type) and issubclass(value, BaseException) for value in classes):
        raise InvalidTask(f"{name} must be exception classes.")
    return classes


def _ids(after: Any) -> tuple[UUID, ...]:
    many = after if isinstance(after, list | tuple | set | frozenset) else [after]
    try:
        return tuple(run_id(one) for one in many)
    except ValueError as error:
        raise InvalidTask(f"after: {error}") from None
