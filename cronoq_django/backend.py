"""The backend for Django's tasks framework.

>>> TASKS = {"default": {"BACKEND": "cronoq_django.backend.CronoqBackend"}}

Models are imported when a method is called: `@task` asks for the backend while apps are still loading.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cronoq_django.compat import BaseTaskBackend, TaskResult, task_enqueued
from cronoq_django.tasks.task import Task


class CronoqBackend(BaseTaskBackend):
    """Tasks become runs in PostgreSQL. Without `QUEUES` in its settings, any pool name will do."""

    task_class = Task
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if "QUEUES" not in params:
            self.queues = set()

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Insert a run in the caller's transaction. See `tasks.enqueue.enqueue` for what it refuses."""
        from cronoq_django.tasks.enqueue import enqueue  # noqa: PLC0415

        self.validate_task(task)
        result = enqueue(task, args, kwargs)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """The result of a run. Raises TaskResultDoesNotExist for an unknown or malformed id."""
        from cronoq_django.tasks.results import get_result  # noqa: PLC0415

        return get_result(result_id, self.alias)
