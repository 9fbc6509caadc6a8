"""Decode: why a job's row can't be worked with, if it can't. Whatever is wrong with a job is that job's trouble.

Such a job is set aside with the reason, and not fired until it is edited. One whose script nobody knows is looked at
again when some process does.
"""

from typing import Any

from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.store.leadership import FencedTransaction
from cronoq_django.store.workers import someone_knows


def problem(tx: FencedTransaction, row: dict[str, Any]) -> str:
    """Of a row of `jobs_to_plan` or `due_jobs`: what is wrong with its arguments or its script; empty if nothing.

    The rows say what type of JSON the arguments are: they themselves stay in the database, since 500 jobs with a
    megabyte each took longer than a leader is waited for.
    """
    return _problem_with_arguments(row) or _problem_with_script(tx, row["script"])


def _problem_with_arguments(row: dict[str, Any]) -> str:
    for column, wanted, said in (("args", "array", "list"), ("kwargs", "object", "object")):
        if row[column] != wanted:
            return f"{column}: must be a JSON {said}"
    return ""


def _problem_with_script(tx: FencedTransaction, script: str) -> str:
    # In a mixed fleet a worker may have newer code than this leader.
    why = registry.missing(script)
    if not why or someone_knows(tx, script, silence=2 * conf().lease):
        return ""
    return f"script: {why}"
