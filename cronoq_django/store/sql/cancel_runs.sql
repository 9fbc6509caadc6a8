-- Cancel runs that wait. Locks: its rows, in id order. Relies on: the primary key, or cronoq_run_job_open.
-- Running ones are asked in a statement and a transaction of their own (request_cancel.sql).
WITH waiting AS MATERIALIZED (
    SELECT id, coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    FROM cronoq_run
    WHERE (id = ANY (%(ids)s::uuid[]) OR job_id = %(job)s::uuid)
      AND status IN ('blocked', 'scheduled', 'queued')
    ORDER BY id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_run AS run
SET status = 'cancelled', reason = %(reason)s, error = %(error)s, finished_at = waiting.now, cancel_requested_at = waiting.now,
    key_held = run.key_held AND run.key_for IS NOT NULL, key_until = waiting.now + run.key_for
FROM waiting
WHERE run.id = waiting.id
RETURNING run.id
