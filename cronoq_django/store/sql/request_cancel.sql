-- Ask that running runs be cancelled: their owner ends them, and no further attempt follows, also if it dies.
-- NOTIFY, so that it does not learn of that with its next renewal only.
-- Locks: its rows, in id order, skipping those that somebody holds. Relies on: the primary key.
WITH running AS MATERIALIZED (
    SELECT id
    FROM cronoq_run
    WHERE id = ANY (%(ids)s::uuid[]) AND status = 'running' AND cancel_requested_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
), requested AS (
    UPDATE cronoq_run AS run
    SET cancel_requested_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    FROM running
    WHERE run.id = running.id
    RETURNING run.id
), told AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'cancel'), '') FROM (SELECT FROM requested LIMIT 1) AS once
)
SELECT id, (SELECT count(*) FROM told) FROM requested
