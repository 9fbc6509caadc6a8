"""Backends without a database, for tests: they take and refuse what the real one does, with the same checks.

Results live as long as the thread's backend, or until `clear()`.
"""

from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from graphlib import TopologicalSorter
from typing import Any
from uuid import UUID, uuid4

from cronoq_django.backend import CronoqBackend
from cronoq_django.compat import TaskError, TaskResultDoesNotExist, TaskResultStatus, task_enqueued, task_finished
from cronoq_django.errors import Duplicate, NotFound
from cronoq_django.models.choices import Condition, Status
from cronoq_django.models.fields import load_json
from cronoq_django.store import clock
from cronoq_django.store.runs import ClaimedRun, NewRun
from cronoq_django.tasks.bound import Bound
from cronoq_django.tasks.enqueue import new_runs, refuse_cycle
from cronoq_django.tasks.results import RunResult, new_result
from cronoq_django.worker.executor import Execution


class DummyBackend(CronoqBackend):
    """Keeps what is enqueued in `results`, and executes nothing."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.results: list[RunResult] = []
        self._held: dict[str, tuple[RunResult, timedelta]] = {}  # by key, and for how long after its end
        self._answers: dict[UUID, RunResult] = {}  # by id, also of those for which another one with the key stands

    def clear(self) -> None:
        """Forget everything."""
        self.results.clear()
        self._held.clear()
        self._answers.clear()

    def get_result(self, result_id: str) -> RunResult:
        """The result of a run. Raises TaskResultDoesNotExist for an unknown or malformed id."""
        for result in self.results:
            if result.id == str(result_id):
                return result
        raise TaskResultDoesNotExist(str(result_id))

    def enqueue_many(self, members: Sequence[Bound]) -> list[RunResult]:
        """Take bound tasks, all or none."""
        self.validate(members)
        refuse_cycle(members)
        runs = {run.id: run for run in new_runs(members)}
        known = self._answers.keys() | runs.keys()
        keys: set[str] = set()
        for member in members:
            key = getattr(member.task, "key", None)
            if missing := sorted(member.prerequisites.keys() - known):
                raise NotFound(f"after: there is no run {missing[0]}")
            there = self._holder(member)
            if (there is not None or key in keys) and member.task.on_duplicate == "raise":
                raise Duplicate(str(key), member.id if there is None else UUID(there.id))
            keys |= {key} if key is not None else set()
        graph = {member.id: member.prerequisites.keys() & runs.keys() for member in members}
        by_id = {member.id: member for member in members}
        taken = {id_: self._take(by_id[id_], runs[id_]) for id_ in TopologicalSorter(graph).static_order()}
        return [taken[member.id] for member in members]

    def _take(self, member: Bound, run: NewRun) -> RunResult:
        if (there := self._answers.get(member.id) or self._holder(member)) is not None:
            self._answers[member.id] = there
            answer = copy(there)
            _change(answer, created=False)
            return answer
        result = new_result(member, clock.now())
        _change(result, args=load_json(run.args), kwargs=load_json(run.kwargs))
        self.results.append(result)
        self._answers[member.id] = result
        if run.key is not None:
            self._held[run.key] = result, run.key_for or timedelta()
        task_enqueued.send_robust(type(self), task_result=result)
        self.took(result, member, run)
        return result

    def _holder(self, member: Bound) -> RunResult | None:
        result, key_for = self._held.get(getattr(member.task, "key", None) or "", (None, timedelta()))
        if result is None or result.finished_at is None or result.finished_at + key_for > clock.now():
            return result
        return None

    def took(self, result: RunResult, member: Bound, run: NewRun) -> None:
        """A new run was taken."""


class ImmediateBackend(DummyBackend):
    """Executes what is enqueued at once, in the caller's thread and transaction, as often as the task's attempts allow.

    A delay is not waited for. One that waits for others comes after them, or fails if they ended otherwise. One that
    snoozes stays ready.
    """

    def took(self, result: RunResult, member: Bound, run: NewRun) -> None:
        worker = str(uuid4())
        prerequisites = [(self._answers[id_], on) for id_, on in member.prerequisites.items()]
        if not all(prerequisite.is_finished for prerequisite, _ in prerequisites):
            return  # one has snoozed
        late = run.expires_at is not None and run.expires_at <= clock.now()
        if (why := "It was not begun by its deadline." if late else _unmet(prerequisites)) is not None:
            error = TaskError(exception_class_path="cronoq_django.errors.CronoqError", traceback=why)
            self._end(result, TaskResultStatus.FAILED, error)
            return
        while True:
            now = clock.now()
            _change(result, started_at=result.started_at or now, last_attempted_at=now)
            completion = Execution(_claimed(run, attempts=len(result.worker_ids)), worker).execute()
            assert completion is not None  # noqa: S101  (nobody else can have given it back)
            result.worker_ids.append(worker)
            error = TaskError(exception_class_path=completion.exception_class, traceback=completion.traceback)
            if completion.status == Status.SUCCEEDED:
                _change(result, _return_value=load_json(completion.result or "null"))
                self._end(result, TaskResultStatus.SUCCESSFUL, None)
                return
            if completion.status != Status.QUEUED:
                self._end(result, TaskResultStatus.FAILED, error)
                return
            if not completion.counts:
                return
            result.errors.append(error)

    def _end(self, result: RunResult, status: TaskResultStatus, error: TaskError | None) -> None:
        if error is not None:
            result.errors.append(error)
        _change(result, status=status, finished_at=clock.now())
        task_finished.send_robust(type(self), task_result=result)


def _unmet(prerequisites: Sequence[tuple[RunResult, str]]) -> str | None:
    for prerequisite, condition in prerequisites:
        succeeded = prerequisite.status == TaskResultStatus.SUCCESSFUL
        if condition != Condition.ANY and succeeded != (condition == Condition.SUCCESS):
            return f"The prerequisite {prerequisite.id} ended {prerequisite.status}."
    return None


def _change(result: RunResult, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _claimed(run: NewRun, *, attempts: int) -> ClaimedRun:
    return ClaimedRun(
        id=run.id,
        claim=0,
        script=run.script,
        args=run.args,
        kwargs=run.kwargs,
        pool=run.pool,
        priority=run.priority,
        due_at=run.due_at or clock.now(),
        attempts=attempts,
        max_attempts=run.max_attempts,
        backoff=run.backoff,
        timeout=run.timeout,
        job_name="",
        scheduled_for=None,
        created_at=clock.now(),
        root_id=run.root_id,
    )
