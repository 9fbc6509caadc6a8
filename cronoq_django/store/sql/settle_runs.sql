-- Decide what becomes of waiting runs, which this transaction has locked, now that prerequisites have ended: all ended as
-- the condition says: queued (or scheduled); one ended otherwise: skipped, at once. A prerequisite that was deleted did
-- not succeed. What waits for a skipped run is left to the leader: one level a transaction.
WITH needed AS MATERIALIZED (
    SELECT dependency.id, dependency.run_id, dependency.prerequisite_id, run.status, run.finished_at,
           CASE WHEN run.status IN ('blocked', 'scheduled', 'queued', 'running') THEN NULL
                WHEN dependency.condition = 'any' THEN true
                ELSE (run.status IS NOT DISTINCT FROM 'succeeded') = (dependency.condition = 'success') END AS holds
    FROM cronoq_dependency AS dependency LEFT JOIN cronoq_run AS run ON run.id = dependency.prerequisite_id
    WHERE dependency.run_id = ANY (%(ids)s::uuid[]) AND dependency.settled_at IS NULL
), verdict AS MATERIALIZED (
    SELECT given.id, coalesce(bool_or(NOT needed.holds), false) AS fails,
           coalesce(bool_and(needed.holds IS TRUE), true) OR needed.run_id IS NULL AS holds,
           min('The prerequisite ' || needed.prerequisite_id || coalesce(' ended ' || needed.status, ' was deleted') || '.')
               FILTER (WHERE NOT needed.holds) AS why
    FROM unnest(%(ids)s::uuid[]) AS given (id) LEFT JOIN needed ON needed.run_id = given.id
    GROUP BY given.id, needed.run_id IS NULL
), settled AS (
    UPDATE cronoq_dependency AS dependency
    SET settled_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    FROM needed JOIN verdict ON verdict.id = needed.run_id
    WHERE dependency.id = needed.id AND (verdict.fails OR needed.holds)
), changed AS (
    UPDATE cronoq_run AS run
    SET status = CASE WHEN verdict.fails THEN 'skipped' WHEN run.due_at > moment.now THEN 'scheduled' ELSE 'queued' END,
        reason = CASE WHEN verdict.fails THEN 'prerequisite' ELSE '' END,
        error = CASE WHEN verdict.fails THEN verdict.why ELSE '' END,
        finished_at = CASE WHEN verdict.fails THEN moment.now END,
        key_held = run.key_held AND (NOT verdict.fails OR run.key_for IS NOT NULL),
        key_until = CASE WHEN verdict.fails THEN moment.now + run.key_for END
    FROM verdict, (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS moment
    WHERE run.id = verdict.id AND run.status = 'blocked' AND (verdict.fails OR verdict.holds)
    RETURNING run.id, run.status, run.pool, run.priority
), unsettled AS (
    INSERT INTO cronoq_unsettled (run)
    SELECT DISTINCT run_id FROM cronoq_dependency
    WHERE prerequisite_id IN (SELECT id FROM changed WHERE status = 'skipped') AND settled_at IS NULL
    RETURNING run
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), max(priority)::text)
    FROM changed WHERE status = 'queued' GROUP BY pool
    UNION ALL
    SELECT pg_notify(cronoq_channel(current_schema(), 'leader'), 'settle') FROM (SELECT FROM unsettled LIMIT 1) AS once
)
SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM woken)
