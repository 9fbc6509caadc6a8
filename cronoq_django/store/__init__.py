"""The store: every hot or fenced statement, one a file in `sql/`, and the functions that run them on a cursor.

The rule: people's edits, and reading, go through the ORM, where triggers guard the rows; claims, completions, ticks and
whatever only a leader may write go through statements here.

The operations under the field's names are imported from here: `from cronoq_django.store import upsert_job`. Each is an
ordinary function that takes the database alias of the cluster as `using` (default CRONOQ["DATABASE"]), and checks what
it is given. Leaders and workers run the same statements on sessions of theirs, through functions that take a cursor.
"""

from typing import TYPE_CHECKING

from cronoq_django.lazy import lazily

if TYPE_CHECKING:
    from cronoq_django.store.claims import claim_next_queued as claim_next_queued
    from cronoq_django.store.claims import claim_run_by_id as claim_run_by_id
    from cronoq_django.store.claims import claim_runs_by_ids as claim_runs_by_ids
    from cronoq_django.store.claims import complete_runs as complete_runs
    from cronoq_django.store.claims import renew_run_lease as renew_run_lease
    from cronoq_django.store.claims import update_run as update_run
    from cronoq_django.store.fleet import find_due_job_ids_in_partitions as find_due_job_ids_in_partitions
    from cronoq_django.store.fleet import get_leader as get_leader
    from cronoq_django.store.fleet import heartbeat_worker as heartbeat_worker
    from cronoq_django.store.fleet import list_partition_assignments as list_partition_assignments
    from cronoq_django.store.fleet import list_workers as list_workers
    from cronoq_django.store.fleet import min_next_run_at_in_partitions as min_next_run_at_in_partitions
    from cronoq_django.store.fleet import register_worker as register_worker
    from cronoq_django.store.jobs import get_job as get_job
    from cronoq_django.store.jobs import get_job_by_name as get_job_by_name
    from cronoq_django.store.jobs import list_due_jobs as list_due_jobs
    from cronoq_django.store.jobs import list_jobs as list_jobs
    from cronoq_django.store.jobs import pause_job as pause_job
    from cronoq_django.store.jobs import resume_job as resume_job
    from cronoq_django.store.jobs import run_job_now as run_job_now
    from cronoq_django.store.jobs import upsert_job as upsert_job
    from cronoq_django.store.listing import list_runs_filtered as list_runs_filtered
    from cronoq_django.store.listing import list_runs_for_job as list_runs_for_job
    from cronoq_django.store.records import create_run as create_run
    from cronoq_django.store.records import get_run as get_run
    from cronoq_django.store.retention import prune as prune
    from cronoq_django.store.revisions import list_revisions as list_revisions
    from cronoq_django.store.revisions import rollback_job as rollback_job
    from cronoq_django.store.schema import create_schema as create_schema
    from cronoq_django.store.schema import drop_schema as drop_schema
    from cronoq_django.store.schema import list_schemas as list_schemas
    from cronoq_django.store.scripts import get_script as get_script
    from cronoq_django.store.scripts import upsert_script as upsert_script

_HOMES = {
    **dict.fromkeys(("claim_next_queued", "claim_run_by_id", "claim_runs_by_ids", "complete_runs"), "claims"),
    **dict.fromkeys(("renew_run_lease", "update_run"), "claims"),
    **dict.fromkeys(
        ("find_due_job_ids_in_partitions", "get_leader", "heartbeat_worker", "list_partition_assignments"), "fleet"
    ),
    **dict.fromkeys(("list_workers", "min_next_run_at_in_partitions", "register_worker"), "fleet"),
    **dict.fromkeys(("get_job", "get_job_by_name", "list_due_jobs", "list_jobs"), "jobs"),
    **dict.fromkeys(("pause_job", "resume_job", "run_job_now", "upsert_job"), "jobs"),
    **dict.fromkeys(("list_runs_filtered", "list_runs_for_job"), "listing"),
    **dict.fromkeys(("create_run", "get_run"), "records"),
    **dict.fromkeys(("prune",), "retention"),
    **dict.fromkeys(("list_revisions", "rollback_job"), "revisions"),
    **dict.fromkeys(("create_schema", "drop_schema", "list_schemas"), "schema"),
    **dict.fromkeys(("get_script", "upsert_script"), "scripts"),
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  (a computed list: one table of names, not two)

__getattr__ = lazily(__name__, _HOMES)
