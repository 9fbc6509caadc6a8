-- Register a coordinator, or its heartbeat. Its own row, so no fence.
INSERT INTO cronoq_coordinator (id, host, process_id, version, status, declares, started_at, last_heartbeat_at)
VALUES (%(id)s, %(host)s, %(process_id)s, %(version)s, %(status)s, %(declares)s, clock_timestamp(), clock_timestamp())
ON CONFLICT (id) DO UPDATE SET status = excluded.status, last_heartbeat_at = clock_timestamp()
RETURNING started_at
