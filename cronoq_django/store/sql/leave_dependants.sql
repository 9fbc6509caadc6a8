-- Leave what waits for these runs, which end in this transaction, to the leader. Under a snapshot that is older than a
-- waiting run, that one is not seen: then all are left. Relies on: cronoq_dependency_open (partial index).
WITH unsettled AS (
    INSERT INTO cronoq_unsettled (run)
    SELECT given.id FROM unnest(%(prerequisites)s::uuid[]) AS given (id)
    WHERE current_setting('transaction_isolation') <> 'read committed'
       OR EXISTS (SELECT FROM cronoq_dependency WHERE prerequisite_id = given.id AND settled_at IS NULL)
    RETURNING run
)
SELECT pg_notify(cronoq_channel(current_schema(), 'leader'), 'settle') FROM (SELECT FROM unsettled LIMIT 1) AS once
