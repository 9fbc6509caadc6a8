-- Register a worker, or that it is back after a lost connection. Its own row, so no fence.
INSERT INTO cronoq_worker (id, name, host, process_id, version, pools, concurrency, scripts, status, running, started_at, last_heartbeat_at)
VALUES (%(id)s, %(name)s, %(host)s, %(process_id)s, %(version)s, %(pools)s::json, %(concurrency)s, %(scripts)s, 'online', 0,
        clock_timestamp(), clock_timestamp())
ON CONFLICT (id) DO UPDATE SET status = 'online', last_heartbeat_at = clock_timestamp()
