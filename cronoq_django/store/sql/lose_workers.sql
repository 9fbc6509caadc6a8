-- Mark workers and coordinators whose heartbeat stopped as lost. Their runs are taken back when the leases run out.
WITH workers AS (
    UPDATE cronoq_worker SET status = 'lost'
    WHERE status IN ('online', 'draining') AND last_heartbeat_at < clock_timestamp() - %(silence)s::interval
    RETURNING id
), coordinators AS (
    UPDATE cronoq_coordinator SET status = 'lost'
    WHERE status IN ('leading', 'standby', 'ticking') AND last_heartbeat_at < clock_timestamp() - %(silence)s::interval
    RETURNING id
)
SELECT (SELECT count(*) FROM workers) + (SELECT count(*) FROM coordinators)
