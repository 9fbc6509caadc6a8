-- Renew the leases of all that one worker runs, and show where a cancel was requested.
-- Locks: its rows, in id order, skipping those being ended right now. Relies on: cronoq_run_running (partial index);
-- lease_expires_at is in no index, so this is a HOT update.
WITH held AS MATERIALIZED (
    SELECT id
    FROM cronoq_run
    WHERE worker_id = %(worker)s AND status = 'running'
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_run AS run
SET lease_expires_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(lease)s::interval
FROM held
WHERE run.id = held.id
RETURNING run.id, run.claim, run.cancel_requested_at
