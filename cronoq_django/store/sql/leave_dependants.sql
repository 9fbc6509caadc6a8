-- Leave what waits for these runs, which end in this transaction, to the leader. Relies on: cronoq_dependency_open.
WITH unsettled AS (
    INSERT INTO cronoq_unsettled (run)
    SELECT DISTINCT run_id FROM cronoq_dependency
    WHERE prerequisite_id = ANY (%(prerequisites)s::uuid[]) AND settled_at IS NULL
    RETURNING run
)
SELECT pg_notify(cronoq_channel(current_schema(), 'leader'), 'settle') FROM (SELECT FROM unsettled LIMIT 1) AS once
