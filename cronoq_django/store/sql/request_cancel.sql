-- Ask that running runs be cancelled: their owner ends them, and no further attempt follows, also if it dies.
-- Locks: its rows, in id order, skipping those that somebody holds. Relies on: the primary key.
WITH running AS MATERIALIZED (
    SELECT id
    FROM cronoq_run
    WHERE id = ANY (%(ids)s::uuid[]) AND status = 'running' AND cancel_requested_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_run AS run
SET cancel_requested_at = coalesce(%(now)s::timestamptz, clock_timestamp())
FROM running
WHERE run.id = running.id
RETURNING run.id
