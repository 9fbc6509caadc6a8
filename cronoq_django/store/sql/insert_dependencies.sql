-- Let new runs wait for others. `late`: prerequisites that were committed before, and may be ending right now without
-- seeing this; the leader looks at each once (settle). Locks: nothing but the new rows.
WITH added AS (
    INSERT INTO cronoq_dependency (run_id, prerequisite_id, condition)
    SELECT * FROM unnest(%(run)s::uuid[], %(prerequisite)s::uuid[], %(condition)s::text[])
), unsettled AS (
    INSERT INTO cronoq_unsettled (run) SELECT unnest(%(late)s::uuid[]) RETURNING run
)
SELECT pg_notify(cronoq_channel(current_schema(), 'leader'), 'settle') FROM (SELECT FROM unsettled LIMIT 1) AS once
