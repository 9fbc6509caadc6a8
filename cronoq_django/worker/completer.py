"""The completer: gathers outcomes for the next transaction, and tells Django's signals after its commit."""

import logging
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections

from cronoq_django import registry
from cronoq_django.compat import TaskResultStatus, task_finished
from cronoq_django.errors import Quarantined
from cronoq_django.models.choices import Status
from cronoq_django.store.runs import Completed, Completion
from cronoq_django.worker.executor import Execution, arguments, tell

logger = logging.getLogger("cronoq.worker")

BATCH = 500

Finished = tuple[Execution, Completion]


class Completer:
    """Outcomes wait here until a transaction with them has committed: a lost connection loses none."""

    def __init__(self) -> None:
        self._waiting: deque[Finished] = deque()
        self._lock = threading.Lock()
        self._teller = ThreadPoolExecutor(1, thread_name_prefix="cronoq-signals")

    def add(self, execution: Execution, completion: Completion) -> None:
        """From any thread."""
        with self._lock:
            self._waiting.append((execution, completion))

    def batch(self) -> list[Finished]:
        """The next outcomes to write; they stay here until `written`."""
        with self._lock:
            return list(self._waiting)[:BATCH]

    def written(self, batch: list[Finished], completed: Completed) -> None:
        """The transaction has committed: forget the batch but for what was busy, and tell."""
        done = [(execution, completion) for execution, completion in batch if execution.key not in completed.busy]
        with self._lock:
            busy = [finished for finished in batch if finished[0].key in completed.busy]
            for _ in batch:
                self._waiting.popleft()
            self._waiting.extend(busy)
        for execution, completion in done:
            status = completed.accepted.get(execution.key)
            if status is None:
                logger.warning("The outcome of run %s was refused: it was taken over, or had ended.", completion.id)
            elif status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED):
                self._teller.submit(_tell, execution, status)

    def close(self) -> None:
        """Wait for the signals to be told."""
        self._teller.shutdown(wait=True)


def _tell(execution: Execution, status: Status) -> None:
    close_old_connections()
    tell_finished(execution, status)
    close_old_connections()


def tell_finished(execution: Execution, status: Status) -> None:
    """Tell Django's signals that the run has ended."""
    try:
        script = registry.find(execution.run.script)
        args, kwargs = arguments(execution.run)
        script.bind(args, kwargs)
    except Quarantined:
        return  # there is no task to tell of
    result = execution.task_result(script.task, args, kwargs)
    object.__setattr__(
        result, "status", TaskResultStatus.SUCCESSFUL if status == Status.SUCCEEDED else TaskResultStatus.FAILED
    )
    tell(task_finished, script.task, result)
