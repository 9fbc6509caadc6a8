-- A worker's heartbeat, or its end. Returns whether somebody asked it to drain.
-- Locks: its row, unless somebody else holds it: a heartbeat less is no harm, waiting would cost the leases.
WITH free AS MATERIALIZED (
    SELECT id FROM cronoq_worker WHERE id = %(id)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_worker AS worker
SET status = %(status)s, last_heartbeat_at = clock_timestamp(),
    running = (SELECT count(*) FROM cronoq_run WHERE worker_id = %(id)s AND status = 'running')
FROM free
WHERE worker.id = free.id
RETURNING worker.drain_requested_at IS NOT NULL
