"""Decode: why a job's row can't be worked with, if it can't. Whatever is wrong with a job is that job's trouble.

Such a job is set aside with the reason, and not fired until it is edited. One whose script nobody knows is looked at
again when some process does.
"""

from typing import Any

from cronoq_django import registry
from cronoq_django.conf import conf
from cronoq_django.errors import Quarantined
from cronoq_django.models.fields import load_json
from cronoq_django.store.leadership import FencedTransaction
from cronoq_django.store.workers import someone_knows


def problem(tx: FencedTransaction, row: dict[str, Any]) -> str:
    """Of a row of `jobs_to_plan` or `due_jobs`: what is wrong with its arguments or its script; empty if nothing."""
    return _problem_with_arguments(row) or _problem_with_script(tx, row["script"])


def _problem_with_arguments(row: dict[str, Any]) -> str:
    for column, wanted, said in (("args", list, "list"), ("kwargs", dict, "object")):
        try:
            good = isinstance(load_json(row[column]), wanted)
        except ValueError as error:
            return f"{column}: can't be read: {error}"
        if not good:
            return f"{column}: must be a JSON {said}"
    return ""


def _problem_with_script(tx: FencedTransaction, script: str) -> str:
    # Asked before it is looked for: in a mixed fleet a worker may have newer code than this leader.
    if registry.is_known(script) or someone_knows(tx, script, silence=2 * conf().lease):
        return ""
    try:
        registry.find(script)
    except Quarantined as error:
        return f"script: {error}"
    return ""
