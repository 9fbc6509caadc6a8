-- Fail the runs that were not begun by their deadline.
-- Locks: its rows, skipping those that somebody holds. Relies on: cronoq_run_expires (partial index).
WITH late AS MATERIALIZED (
    SELECT id, coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    FROM cronoq_run
    WHERE expires_at <= coalesce(%(now)s::timestamptz, statement_timestamp()) AND finished_at IS NULL
      AND status IN ('blocked', 'scheduled', 'queued') AND attempts = 0 AND started_at IS NULL
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_run AS run
SET status = 'failed', reason = 'expired', error = 'It was not begun by its deadline.', finished_at = late.now,
    key_held = run.key_held AND run.key_for IS NOT NULL, key_until = late.now + run.key_for
FROM late
WHERE run.id = late.id
RETURNING run.id
