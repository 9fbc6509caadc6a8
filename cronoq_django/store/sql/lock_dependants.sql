-- Lock what waits for those of these runs that have ended, or end in this transaction, or are gone. Deciding is for the
-- next statement, which sees what those committed whom this one met: in one, two prerequisites that end together each
-- miss the other.
-- Locks: waiting runs, in id order, at most `limit`. Those that somebody holds (another prerequisite ends, somebody
-- cancels), and the rest of very many, are left to the leader: nobody who ends a run waits for another one, or for long.
-- What ended while it waited waits no more. Such a row may be in the hands of who removes old runs, many and in another
-- order: that is left to the leader, too. Relies on: cronoq_dependency_open (partial index).
WITH dependants AS MATERIALIZED (
    SELECT dependency.id AS dependency, dependency.run_id AS id, run.status IS NOT DISTINCT FROM 'blocked' AS waits
    FROM cronoq_dependency AS dependency LEFT JOIN cronoq_run AS run ON run.id = dependency.run_id
    WHERE dependency.prerequisite_id = ANY (%(prerequisites)s::uuid[]) AND dependency.settled_at IS NULL
      -- Scalar, so that no plan makes a join with the whole table of it.
      AND coalesce((SELECT finished_at IS NOT NULL FROM cronoq_run WHERE id = dependency.prerequisite_id), true)
    LIMIT %(limit)s
), locked AS MATERIALIZED (
    SELECT id FROM cronoq_run
    WHERE id = ANY (ARRAY(SELECT id FROM dependants WHERE waits)) AND status = 'blocked'
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
), free AS MATERIALIZED (
    SELECT id FROM cronoq_dependency
    WHERE id = ANY (ARRAY(SELECT dependency FROM dependants WHERE NOT waits))
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
), over AS (
    UPDATE cronoq_dependency AS dependency SET settled_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    FROM free
    WHERE dependency.id = free.id
    RETURNING dependency.id
), unsettled AS (
    INSERT INTO cronoq_unsettled (run)
    SELECT given.id FROM unnest(%(prerequisites)s::uuid[]) AS given (id)
    WHERE EXISTS (SELECT FROM dependants)
      AND EXISTS (
          SELECT FROM cronoq_dependency AS other
          WHERE other.prerequisite_id = given.id AND other.settled_at IS NULL
            AND other.id NOT IN (
                SELECT id FROM over UNION ALL SELECT dependency FROM dependants WHERE id IN (SELECT id FROM locked)))
    RETURNING run
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'leader'), 'settle') FROM (SELECT FROM unsettled LIMIT 1) AS once
)
SELECT id, (SELECT count(*) FROM woken) FROM locked
