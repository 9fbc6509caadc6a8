-- Add runs, in the caller's transaction, and wake the workers of the pools where some are due now.
-- Locks: nothing but the new rows. A row whose id exists already is left as it is and not returned: a retry after a
-- commit whose answer was lost meets its own row.
-- Relies on: the default isolation only; NOTIFY is delivered by the commit, once per pool and transaction.
INSERT INTO cronoq_run (
    id, trigger, job_id, job_name, job_revision, actor, parent_id, root_id, retry_of_id,
    script, args, kwargs, pool, priority, timeout, max_attempts, backoff, expires_at, status, due_at, created_at)
SELECT
    new.id, new.trigger, new.job_id, new.job_name, new.job_revision, new.actor, new.parent_id, new.root_id,
    new.retry_of_id, new.script, new.args, new.kwargs, new.pool, new.priority, new.timeout, new.max_attempts,
    new.backoff, new.expires_at, CASE WHEN new.due_at > moment.now THEN 'scheduled' ELSE 'queued' END,
    coalesce(new.due_at, moment.now), moment.now
FROM unnest(
        %(id)s::uuid[], %(trigger)s::text[], %(job_id)s::uuid[], %(job_name)s::text[], %(job_revision)s::int[],
        %(actor)s::text[], %(parent_id)s::uuid[], %(root_id)s::uuid[], %(retry_of_id)s::uuid[], %(script)s::text[],
        %(args)s::json[], %(kwargs)s::json[], %(pool)s::text[], %(priority)s::smallint[], %(timeout)s::interval[],
        %(max_attempts)s::int[], %(backoff)s::json[], %(expires_at)s::timestamptz[], %(due_at)s::timestamptz[])
     AS new (id, trigger, job_id, job_name, job_revision, actor, parent_id, root_id, retry_of_id, script, args, kwargs,
             pool, priority, timeout, max_attempts, backoff, expires_at, due_at),
     (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS moment
ON CONFLICT DO NOTHING
RETURNING id, status, due_at, created_at,
          CASE WHEN status = 'queued'
               THEN pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), priority::text) END AS woken
