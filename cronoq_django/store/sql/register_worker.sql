-- Register a worker. Its own row, so no fence; one that is there is not waited for.
INSERT INTO cronoq_worker (id, name, host, process_id, version, pools, concurrency, scripts, status, running, started_at,
                           last_heartbeat_at)
SELECT %(id)s, %(name)s, %(host)s, %(process_id)s, %(version)s, %(pools)s::json, %(concurrency)s, %(scripts)s, 'online', 0,
       clock_timestamp(), clock_timestamp()
WHERE NOT EXISTS (SELECT FROM cronoq_worker WHERE id = %(id)s)
