-- Whether a live worker knows a script. Few rows: workers are processes.
SELECT EXISTS (
    SELECT FROM cronoq_worker
    WHERE status = 'online' AND last_heartbeat_at > clock_timestamp() - %(silence)s::interval
      AND %(script)s = ANY (scripts))
