-- Write back what firing decided. Locks: rows that this transaction holds already (due_jobs.sql).
UPDATE cronoq_job_state AS state
SET next_run_at = given.next_run_at, last_slot = coalesce(given.last_slot, state.last_slot),
    completed_at = CASE WHEN given.completed THEN clock_timestamp() END,
    missed_count = state.missed_count + given.missed, skipped_count = state.skipped_count + given.skipped,
    explanation = given.explanation, error = given.error, epoch = %(epoch)s, updated_at = clock_timestamp()
FROM json_to_recordset(%(states)s::json) AS given (
         job_id uuid, next_run_at timestamptz, last_slot timestamptz, completed boolean, missed bigint, skipped bigint,
         explanation text, error text)
WHERE state.job_id = given.job_id
