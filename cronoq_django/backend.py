"""The backend for Django's tasks framework.

>>> TASKS = {"default": {"BACKEND": "cronoq_django.backend.CronoqBackend"}}
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from cronoq_django.compat import BaseTaskBackend, TaskResult, task_enqueued
from cronoq_django.conf import conf
from cronoq_django.tasks.bound import Bound
from cronoq_django.tasks.enqueue import submit
from cronoq_django.tasks.results import RunResult, get_result
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
        """Insert a run in the caller's transaction. See `tasks.enqueue.submit` for what it refuses."""
        return self.enqueue_many([Bound(task, args, kwargs)])[0]

    def enqueue_many(self, members: Sequence[Bound]) -> list[RunResult]:
        """Insert the runs of bound tasks; `task_enqueued` is sent for the new ones when they are committed."""
        self.validate(members)
        results = submit(members)
        new = tuple(result for result in results if result.created)  # the list is the caller's from now on
        transaction.on_commit(lambda: self._tell(new), using=conf().database)
        return results

    def validate(self, members: Sequence[Bound]) -> None:
        """Look at each task once. Raises InvalidTask."""
        for task in {id(member.task): member.task for member in members}.values():
            self.validate_task(task)

    def _tell(self, results: Sequence[Any]) -> None:
        for result in results:
            task_enqueued.send_robust(type(self), task_result=result)

    def get_result(self, result_id: str) -> TaskResult:
        """The result of a run. Raises TaskResultDoesNotExist for an unknown or malformed id."""
        return get_result(result_id, self.alias)
