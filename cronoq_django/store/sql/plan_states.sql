-- Store the next slots, each with the schedule revision that it was computed for.
-- Locks: the states it writes, in id order (the input is sorted).
INSERT INTO cronoq_job_state (job_id, partition, planned_revision, next_run_at, completed_at, explanation, error, epoch, updated_at)
SELECT given.job_id, get_byte(sha256(uuid_send(given.job_id)), 0) & 63, given.planned_revision, given.next_run_at,
       CASE WHEN given.completed THEN clock_timestamp() END, given.explanation, given.error, %(epoch)s, clock_timestamp()
FROM json_to_recordset(%(states)s::json) AS given (
         job_id uuid, planned_revision int, next_run_at timestamptz, completed boolean, explanation text, error text)
ON CONFLICT (job_id) DO UPDATE
SET planned_revision = excluded.planned_revision, next_run_at = excluded.next_run_at,
    completed_at = excluded.completed_at, explanation = excluded.explanation, error = excluded.error,
    epoch = excluded.epoch, updated_at = clock_timestamp()
