-- Decide what becomes of waiting runs, which this transaction has locked, now that these prerequisites have ended: one
-- ended otherwise than the condition says: skipped, at once; it was the last one: queued (or scheduled). A prerequisite
-- that was deleted did not succeed. What waits for a skipped run is left to the leader: one level a transaction.
-- Relies on: cronoq_dependency_open, cronoq_dependency_waits (partial indexes).
WITH met AS MATERIALIZED (
    SELECT dependency.id, dependency.run_id, dependency.prerequisite_id, run.status,
           dependency.condition = 'any'
           OR (run.status IS NOT DISTINCT FROM 'succeeded') = (dependency.condition = 'success') AS holds
    FROM cronoq_dependency AS dependency LEFT JOIN cronoq_run AS run ON run.id = dependency.prerequisite_id
    WHERE dependency.prerequisite_id = ANY (%(prerequisites)s::uuid[]) AND dependency.settled_at IS NULL
      AND dependency.run_id = ANY (%(ids)s::uuid[])
), verdict AS MATERIALIZED (
    SELECT run_id AS id, bool_or(NOT holds) AS fails,
           min('The prerequisite ' || prerequisite_id || coalesce(' ended ' || status, ' was deleted') || '.')
               FILTER (WHERE NOT holds) AS why
    FROM met GROUP BY run_id
), settled AS (
    UPDATE cronoq_dependency SET settled_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    WHERE id = ANY (ARRAY(
        SELECT id FROM met
        UNION
        SELECT dependency.id FROM verdict JOIN cronoq_dependency AS dependency ON dependency.run_id = verdict.id
        WHERE verdict.fails AND dependency.settled_at IS NULL))
), changed AS (
    UPDATE cronoq_run AS run
    SET status = CASE WHEN verdict.fails THEN 'skipped' WHEN run.due_at > moment.now THEN 'scheduled' ELSE 'queued' END,
        reason = CASE WHEN verdict.fails THEN 'prerequisite' ELSE '' END,
        error = CASE WHEN verdict.fails THEN verdict.why ELSE '' END,
        finished_at = CASE WHEN verdict.fails THEN moment.now END,
        key_held = run.key_held AND (NOT verdict.fails OR run.key_for IS NOT NULL),
        key_until = CASE WHEN verdict.fails THEN moment.now + run.key_for END
    FROM verdict, (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS moment
    WHERE run.id = verdict.id AND run.status = 'blocked'
      AND (verdict.fails OR NOT EXISTS (
          SELECT FROM cronoq_dependency AS other
          WHERE other.run_id = verdict.id AND other.settled_at IS NULL AND other.id NOT IN (SELECT id FROM met)))
    RETURNING run.id, run.status, run.pool, run.priority
), unsettled AS (
    INSERT INTO cronoq_unsettled (run)
    SELECT id FROM changed
    WHERE status = 'skipped'
      AND EXISTS (SELECT FROM cronoq_dependency WHERE prerequisite_id = changed.id AND settled_at IS NULL)
    RETURNING run
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), max(priority)::text)
    FROM changed WHERE status = 'queued' GROUP BY pool
    UNION ALL
    SELECT pg_notify(cronoq_channel(current_schema(), 'leader'), 'settle') FROM (SELECT FROM unsettled LIMIT 1) AS once
)
SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM woken)
