-- Mark workers and coordinators whose heartbeat stopped as lost. Their runs are taken back when the leases run out.
-- Locks: their rows, skipping those that somebody holds.
WITH silent_workers AS MATERIALIZED (
    SELECT id FROM cronoq_worker
    WHERE status IN ('online', 'draining') AND last_heartbeat_at < clock_timestamp() - %(silence)s::interval
    FOR NO KEY UPDATE SKIP LOCKED
), silent_coordinators AS MATERIALIZED (
    SELECT id FROM cronoq_coordinator
    WHERE status IN ('leading', 'standby', 'ticking') AND last_heartbeat_at < clock_timestamp() - %(silence)s::interval
    FOR NO KEY UPDATE SKIP LOCKED
), workers AS (
    UPDATE cronoq_worker SET status = 'lost' WHERE id IN (SELECT id FROM silent_workers) RETURNING id
), coordinators AS (
    UPDATE cronoq_coordinator SET status = 'lost' WHERE id IN (SELECT id FROM silent_coordinators) RETURNING id
)
SELECT (SELECT count(*) FROM workers) + (SELECT count(*) FROM coordinators)
