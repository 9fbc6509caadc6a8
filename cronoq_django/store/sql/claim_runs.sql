-- Claim the next runs of one pool: highest priority first, then the longest due.
-- Locks: the rows it takes, skipping those another claimer is taking.
-- Relies on: cronoq_run_queued (partial index, in this order). MATERIALIZED: with IN (SELECT … LIMIT n) a nested loop
-- claimed more than n. FOR NO KEY UPDATE: FOR UPDATE would wait for an open transaction that refers to the row.
WITH picked AS MATERIALIZED (
    SELECT id
    FROM cronoq_run
    WHERE status = 'queued' AND pool = %(pool)s AND script <> ALL (%(excluded)s::text[])
      AND (expires_at IS NULL OR expires_at > coalesce(%(now)s::timestamptz, clock_timestamp())
           OR attempts > 0 OR started_at IS NOT NULL)  -- begun before its deadline
      AND NOT EXISTS (SELECT FROM cronoq_pool WHERE name = %(pool)s AND paused)
    ORDER BY priority DESC, due_at, id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_run AS run
SET status = 'running', worker_id = %(worker)s, claim = (SELECT nextval('cronoq_claim')),
    lease_expires_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(lease)s::interval,
    -- Begun counts from the claim where it must not be missed: if the run was lost once without being seen to begin,
    -- and at the last attempt, which a worker that dies at once would get again.
    started_at = CASE WHEN run.solo OR run.attempts + 1 >= run.max_attempts THEN coalesce(%(now)s::timestamptz, clock_timestamp()) END
FROM picked
WHERE run.id = picked.id
RETURNING run.id, run.claim, run.script, run.args::text AS args, run.kwargs::text AS kwargs, run.pool, run.priority,
          run.attempts, run.max_attempts, run.backoff::text AS backoff, run.timeout, run.job_name, run.scheduled_for,
          run.created_at, run.root_id
