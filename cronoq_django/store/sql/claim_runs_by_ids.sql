-- Claim those of these runs that may be claimed, by the rules of claim_runs.sql: queued, in no paused pool, before their
-- deadline, one suspect at most; and a claim counts as begun where it does there.
-- Locks: the rows it takes, in id order, skipping those that somebody else has. Relies on: the primary key.
WITH locked AS MATERIALIZED (
    SELECT id, solo OR attempts + 1 >= max_attempts AS counts,
           solo AND (attempts >= 2 OR attempts + 1 >= max_attempts) AS suspect
    FROM cronoq_run AS run
    WHERE id = ANY (%(ids)s::uuid[]) AND status = 'queued'
      AND NOT EXISTS (SELECT FROM cronoq_pool WHERE name = run.pool AND paused)
      AND (%(suspects)s OR NOT (solo AND (attempts >= 2 OR attempts + 1 >= max_attempts)))
      AND (expires_at IS NULL OR expires_at > coalesce(%(now)s::timestamptz, clock_timestamp())
           OR attempts > 0 OR started_at IS NOT NULL)  -- begun before its deadline
    ORDER BY id
    FOR NO KEY UPDATE OF run SKIP LOCKED
), picked AS (
    SELECT id, counts, suspect AND count(*) FILTER (WHERE suspect) OVER (ORDER BY id) > 1 AS waits FROM locked
)
UPDATE cronoq_run AS run
SET status = 'running', worker_id = %(worker)s, claim = nextval('cronoq_claim'),
    lease_expires_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(lease)s::interval,
    started_at = CASE WHEN picked.counts THEN coalesce(%(now)s::timestamptz, clock_timestamp()) END
FROM picked
WHERE run.id = picked.id AND NOT picked.waits
RETURNING run.id, run.trigger, run.script, run.args::text AS args, run.kwargs::text AS kwargs, run.pool, run.priority,
          run.timeout, run.status, run.reason, run.key, run.tags, run.actor, run.job_id, run.job_name, run.parent_id,
          run.root_id, run.retry_of_id, run.attempts, run.max_attempts, run.worker_id, run.claim,
          run.result::text AS result, run.error, run.scheduled_for, run.created_at, run.due_at, run.expires_at,
          run.started_at, run.finished_at, run.cancel_requested_at, run.lease_expires_at
