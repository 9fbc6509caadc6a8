-- Add runs, in the caller's transaction, and wake the workers of the pools where some are due now.
-- Locks: nothing but the new rows. A row whose id or slot exists already is left as it is and not returned: a retry
-- after a commit whose answer was lost meets its own row, and a slot fired by a predecessor stays fired.
-- Relies on: the default isolation only; NOTIFY is delivered by the commit, once per pool and transaction.
INSERT INTO cronoq_run (
    id, trigger, job_id, job_name, job_revision, scheduled_for, actor, parent_id, root_id, retry_of_id,
    script, args, kwargs, pool, priority, timeout, max_attempts, backoff, expires_at,
    status, reason, error, due_at, finished_at, created_at, epoch)
SELECT
    new.id, new.trigger, new.job_id, new.job_name, new.job_revision, new.scheduled_for, new.actor,
    new.parent_id, new.root_id, new.retry_of_id, new.script, new.args, new.kwargs, new.pool, new.priority,
    new.timeout, new.max_attempts, new.backoff, new.expires_at,
    CASE WHEN new.status IS NOT NULL THEN new.status
         WHEN new.due_at > moment.now THEN 'scheduled' ELSE 'queued' END,
    new.reason, new.error, coalesce(new.due_at, moment.now),
    CASE WHEN new.status = 'skipped' THEN moment.now END, moment.now, %(epoch)s::bigint
FROM unnest(
        %(id)s::uuid[], %(trigger)s::text[], %(job_id)s::uuid[], %(job_name)s::text[], %(job_revision)s::int[],
        %(scheduled_for)s::timestamptz[], %(actor)s::text[], %(parent_id)s::uuid[], %(root_id)s::uuid[],
        %(retry_of_id)s::uuid[], %(script)s::text[], %(args)s::json[], %(kwargs)s::json[], %(pool)s::text[],
        %(priority)s::smallint[], %(timeout)s::interval[], %(max_attempts)s::int[], %(backoff)s::json[],
        %(expires_at)s::timestamptz[], %(status)s::text[], %(reason)s::text[], %(error)s::text[],
        %(due_at)s::timestamptz[])
     AS new (id, trigger, job_id, job_name, job_revision, scheduled_for, actor, parent_id, root_id, retry_of_id,
             script, args, kwargs, pool, priority, timeout, max_attempts, backoff, expires_at, status, reason,
             error, due_at),
     (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS moment
ON CONFLICT DO NOTHING
RETURNING id, status, due_at, created_at,
          CASE WHEN status = 'queued'
               THEN pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), priority::text) END AS woken
