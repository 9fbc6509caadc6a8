-- Write back what firing decided. Locks: rows that this transaction holds already (due_jobs.sql).
UPDATE cronoq_job_state AS state
SET next_run_at = given.next_run_at, last_slot = coalesce(given.last_slot, state.last_slot),
    completed_at = CASE WHEN given.completed THEN clock_timestamp() END,
    missed_count = state.missed_count + given.missed, skipped_count = state.skipped_count + given.skipped,
    explanation = coalesce(given.explanation, ''), error = coalesce(given.error, ''), epoch = %(epoch)s, updated_at = clock_timestamp()
FROM unnest(%(job_id)s::uuid[], %(next_run_at)s::timestamptz[], %(last_slot)s::timestamptz[], %(completed)s::boolean[],
            %(missed)s::bigint[], %(skipped)s::bigint[], %(explanation)s::text[], %(error)s::text[])
     AS given (job_id, next_run_at, last_slot, completed, missed, skipped, explanation, error)
WHERE state.job_id = given.job_id
