-- Queue the scheduled runs that are due, the longest due first.
-- Locks: the rows it changes, skipping those being cancelled right now, and looking further past them.
-- Relies on: cronoq_run_scheduled (partial index).
WITH due AS MATERIALIZED (
    SELECT id
    FROM cronoq_run
    WHERE status = 'scheduled' AND due_at <= %(now)s::timestamptz
    ORDER BY due_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), queued AS (
    UPDATE cronoq_run AS run SET status = 'queued' FROM due WHERE run.id = due.id
    RETURNING run.pool, run.priority
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), max(priority)::text) FROM queued GROUP BY pool
)
SELECT (SELECT count(*) FROM queued) AS rows, (SELECT count(*) FROM woken) AS woken
