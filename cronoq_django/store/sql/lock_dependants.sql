-- Lock what waits for these runs, which end in this transaction. Deciding is for the next statement, which sees what
-- those committed whom this one waited behind: in one, two prerequisites that end together each miss the other.
-- Locks: waiting runs, in id order. Those that somebody holds (another prerequisite ends, somebody cancels) are left to
-- the leader: nobody who ends a run waits for another one. Relies on: cronoq_dependency_open (partial index).
WITH dependants AS MATERIALIZED (
    SELECT DISTINCT run_id AS id FROM cronoq_dependency
    WHERE prerequisite_id = ANY (%(prerequisites)s::uuid[]) AND settled_at IS NULL
), locked AS MATERIALIZED (
    SELECT id FROM cronoq_run
    WHERE id IN (SELECT id FROM dependants) AND status = 'blocked'
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
), unsettled AS (
    INSERT INTO cronoq_unsettled (run) SELECT id FROM dependants WHERE id NOT IN (SELECT id FROM locked) RETURNING run
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'leader'), 'settle') FROM (SELECT FROM unsettled LIMIT 1) AS once
)
SELECT id, (SELECT count(*) FROM woken) FROM locked
