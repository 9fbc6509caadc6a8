-- End waiting runs whose arguments nobody could decode. Locks: its rows, in id order, skipping those that somebody holds.
-- Relies on: cronoq_run_undecodable, a partial index that no other run enters.
WITH undecodable AS MATERIALIZED (
    SELECT id, coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    FROM cronoq_run
    WHERE status IN ('blocked', 'scheduled', 'queued')
      AND (json_typeof(args) <> 'array' OR json_typeof(kwargs) <> 'object')
    ORDER BY id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_run AS run
SET status = 'failed', reason = 'quarantined', error = %(error)s, finished_at = undecodable.now,
    key_held = run.key_held AND run.key_for IS NOT NULL, key_until = undecodable.now + run.key_for
FROM undecodable
WHERE run.id = undecodable.id
RETURNING run.id
