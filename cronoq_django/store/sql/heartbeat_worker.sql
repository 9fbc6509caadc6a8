-- A worker's heartbeat, or its end. Returns whether somebody asked it to drain.
UPDATE cronoq_worker
SET status = %(status)s, last_heartbeat_at = clock_timestamp(),
    running = (SELECT count(*) FROM cronoq_run WHERE worker_id = %(id)s AND status = 'running')
WHERE id = %(id)s
RETURNING drain_requested_at IS NOT NULL
