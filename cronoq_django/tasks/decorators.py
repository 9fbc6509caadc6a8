"""The decorators: `@task` makes a function a task, `@job` gives a task a schedule."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack, overload

from cronoq_django import registry
from cronoq_django.models.fields import dump_json
from cronoq_django.schedules import MOST_FIRED, At, Backoff, Cron, Every, Misfire, Overlap, Schedule
from cronoq_django.tasks.task import Options, Task


class TaskOptions(Options, total=False):
    """What can be said of a task only where it is made.

    name           what rows call it (by default module and qualified name), so that the code can move while rows wait
    aliases        names that rows may carry as well: those it had before
    takes_context  whether its first argument is Django's TaskContext
    retry_on       exceptions after which another attempt is made (by default all)
    give_up_on     those of them after which none is
    """

    name: str
    aliases: Sequence[str]
    takes_context: bool
    retry_on: Sequence[type[BaseException]]
    give_up_on: Sequence[type[BaseException]]


@overload
def task(function: Callable[..., Any], /) -> Task: ...
@overload
def task(**options: Unpack[TaskOptions]) -> Callable[[Callable[..., Any]], Task]: ...
def task(
    function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]
) -> Task | Callable[[Callable[..., Any]], Task]:
    """Make a module-level function a task.

    >>> @task(queue_name="mail", max_attempts=5, timeout=30)
    ... def send_invoice(order_id: int) -> str: ...
    >>> send_invoice.enqueue(order_id=17)

    The options are those of `TaskOptions` and of `tasks.task.Options`. Raises InvalidTask for a function or an option
    that cannot work.
    """
    given: dict[str, Any] = {"queue_name": "default", "priority": 0, "backend": "default", **options}
    script = given.pop("name", "")

    def wrap(f: Callable[..., Any]) -> Task:
        made = Task(func=f, script=script, run_after=None, **given)
        registry.register(made)
        return made

    return wrap if function is None else wrap(function)


def job(
    name: str,
    schedule: Schedule,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    enabled: bool = True,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    jitter: timedelta = timedelta(),
    overlap: str = "skip",
    concurrency: int = 1,
    misfire: str = "latest",
    misfire_window: timedelta | None = None,
    misfire_limit: int = 10,
    pause_on_failure: bool = False,
    description: str = "",
) -> Callable[[Task], Task]:
    """Give a task a schedule. The leader keeps the job of that name equal to this until it is changed in the admin.

    >>> @job("nightly-report", cron("0 3 * * *", timezone="Europe/Warsaw"))
    ... @task
    ... def nightly_report() -> None: ...

    Pool, priority, attempts, timeout and backoff are the task's. Raises ValueError, naming the option.
    """
    for option, value, allowed in (("overlap", overlap, Overlap), ("misfire", misfire, Misfire)):
        if value not in list(allowed):
            raise ValueError(f"job {name!r}: {option} must be one of {', '.join(allowed)}, not {value!r}")
    for option, number, most in (("concurrency", concurrency, 2**31 - 1), ("misfire_limit", misfire_limit, MOST_FIRED)):
        if not 1 <= number <= most:
            raise ValueError(f"job {name!r}: {option} must be from 1 to {most:,}, not {number!r}")

    def wrap(made: Task) -> Task:
        registry.describe(made).bind(list(args), dict(kwargs or {}))
        registry.declare(
            registry.DeclaredJob(
                name,
                {
                    "script": made.script_name,
                    "args": dump_json(list(args), "args"),
                    "kwargs": dump_json(dict(kwargs or {}), "kwargs"),
                    "enabled": enabled,
                    **_columns(schedule),
                    "starts_at": starts_at,
                    "ends_at": ends_at,
                    "jitter": jitter,
                    "overlap": overlap,
                    "concurrency": concurrency,
                    "misfire": misfire,
                    "misfire_window": misfire_window,
                    "misfire_limit": misfire_limit,
                    "pause_on_failure": pause_on_failure,
                    "description": description,
                    "pool": made.queue_name,
                    "priority": made.priority,
                    "timeout": made.timeout,
                    "max_attempts": made.max_attempts,
                    "backoff": made.backoff.dump() if made.backoff != Backoff() else None,
                },
            )
        )
        return made

    return wrap


def _columns(schedule: Schedule) -> dict[str, Any]:
    """The Job columns that hold a schedule value."""
    columns: dict[str, Any] = {
        "kind": schedule.kind,
        "cron": "",
        "timezone": "UTC",
        "every": None,
        "anchor": None,
        "run_at": None,
    }
    columns |= {"dst_gap": "", "dst_repeat": ""}
    match schedule:
        case Cron():
            columns |= {
                "cron": schedule.expression,
                "timezone": schedule.timezone,
                "dst_gap": schedule.dst_gap,
                "dst_repeat": schedule.dst_repeat,
            }
        case Every():
            columns |= {"every": schedule.interval, "anchor": schedule.anchor}
        case At():
            columns |= {"run_at": schedule.run_at}
    return columns
