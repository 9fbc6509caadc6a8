"""The store: every hot or fenced statement, one a file in `sql/`, and the functions that run them on a cursor.

The rule: people's edits, and reading, go through the ORM, where triggers guard the rows; claims, completions, ticks and
whatever only a leader may write go through statements here.

The operations under the field's names are imported from here: `from cronoq_django.store import upsert_job`. Each is an
ordinary function that takes the database alias of the cluster as `using` (default CRONOQ["DATABASE"]).
"""

from typing import TYPE_CHECKING

from cronoq_django.lazy import lazily

if TYPE_CHECKING:
    from cronoq_django.store.jobs import get_job as get_job
    from cronoq_django.store.jobs import get_job_by_name as get_job_by_name
    from cronoq_django.store.jobs import list_due_jobs as list_due_jobs
    from cronoq_django.store.jobs import list_jobs as list_jobs
    from cronoq_django.store.jobs import pause_job as pause_job
    from cronoq_django.store.jobs import resume_job as resume_job
    from cronoq_django.store.jobs import run_job_now as run_job_now
    from cronoq_django.store.jobs import upsert_job as upsert_job
    from cronoq_django.store.revisions import list_revisions as list_revisions
    from cronoq_django.store.revisions import rollback_job as rollback_job
    from cronoq_django.store.schema import create_schema as create_schema
    from cronoq_django.store.schema import drop_schema as drop_schema
    from cronoq_django.store.schema import list_schemas as list_schemas

_HOMES = {
    **dict.fromkeys(("get_job", "get_job_by_name", "list_due_jobs", "list_jobs"), "jobs"),
    **dict.fromkeys(("pause_job", "resume_job", "run_job_now", "upsert_job"), "jobs"),
    **dict.fromkeys(("list_revisions", "rollback_job"), "revisions"),
    **dict.fromkeys(("create_schema", "drop_schema", "list_schemas"), "schema"),
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  (a computed list: one table of names, not two)

__getattr__ = lazily(__name__, _HOMES)
