"""What a test asks of runs that wait."""

from typing import Any

from cronoq_django import registry
from cronoq_django.models import Run
from cronoq_django.models.choices import OPEN
from cronoq_django.models.fields import dump_json, load_json
from cronoq_django.store.records import TaskRecord, record
from cronoq_django.store.session import alias_of


def enqueued(task: Any = None) -> list[TaskRecord]:
    """The runs that wait, of all tasks or of one, the oldest first."""
    runs = Run.objects.using(alias_of(None)).filter(status__in=OPEN).order_by("id")
    return [record(run) for run in (runs if task is None else runs.filter(script=registry.script_name(task)))]


def assert_enqueued(task: Any, *args: Any, **kwargs: Any) -> TaskRecord:
    """The first run of `task` with these arguments that waits, however they were passed. Raises AssertionError."""
    signature = registry.describe(task).signature

    def call(args: Any, kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*load_json(dump_json(list(args))), **load_json(dump_json(dict(kwargs))))
        bound.apply_defaults()
        return bound.arguments

    waiting = enqueued(task)
    wanted = call(args, kwargs)
    for one in waiting:
        if call(one.args, one.kwargs) == wanted:
            return one
    others = "".join(f"\n  {dict(call(one.args, one.kwargs))}" for one in waiting) or " nothing"
    raise AssertionError(f"{registry.script_name(task)} was not enqueued with {dict(wanted)}; there is:{others}")
