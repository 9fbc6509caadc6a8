-- Register a coordinator, or its heartbeat; when it first registered. Its own row, so no fence.
-- Locks: that row, unless somebody else holds it: leading must not wait for bookkeeping.
WITH free AS MATERIALIZED (
    SELECT id FROM cronoq_coordinator WHERE id = %(id)s FOR NO KEY UPDATE SKIP LOCKED
), beaten AS (
    UPDATE cronoq_coordinator AS coordinator SET status = %(status)s, last_heartbeat_at = clock_timestamp()
    FROM free WHERE coordinator.id = free.id
), added AS (
    INSERT INTO cronoq_coordinator (id, host, process_id, version, status, declares, started_at, last_heartbeat_at)
    SELECT %(id)s, %(host)s, %(process_id)s, %(version)s, %(status)s, %(declares)s, clock_timestamp(), clock_timestamp()
    WHERE NOT EXISTS (SELECT FROM cronoq_coordinator WHERE id = %(id)s)
    RETURNING started_at
)
SELECT coalesce((SELECT started_at FROM added), (SELECT started_at FROM cronoq_coordinator WHERE id = %(id)s))
