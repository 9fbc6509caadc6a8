-- Add runs, in the caller's transaction, and wake the workers of the pools where some are due now.
-- Locks: nothing but the new rows. Waits, if another transaction has just inserted the same key, until that one ends. A
-- row whose id exists, or whose key somebody holds, is not inserted and not returned: the caller looks (held_runs.sql).
-- Columns that no run of the batch has come as NULL, which unnest fills up; NOTIFY is delivered by the commit, once per
-- pool and transaction.
INSERT INTO cronoq_run (
    id, trigger, job_id, job_name, job_revision, actor, parent_id, root_id, retry_of_id, script, args, kwargs, pool,
    priority, timeout, max_attempts, backoff, tags, key, key_hash, key_held, key_for, expires_at, status, due_at,
    created_at)
SELECT
    new.id, new.trigger, new.job_id, coalesce(new.job_name, ''), new.job_revision, coalesce(new.actor, ''),
    new.parent_id, new.root_id, new.retry_of_id, new.script, new.args, new.kwargs, new.pool, new.priority, new.timeout,
    new.max_attempts, new.backoff,
    CASE WHEN new.tags IS NOT NULL THEN ARRAY(SELECT json_array_elements_text(new.tags)) END,
    new.key, new.key_hash, new.key_hash IS NOT NULL,
    -- In seconds: a day added to an instant is 23 hours long when the session's zone springs forward.
    extract(epoch FROM new.key_for) * interval '1 second', new.expires_at,
    CASE WHEN new.waits THEN 'blocked' WHEN new.due_at > moment.now THEN 'scheduled' ELSE 'queued' END,
    coalesce(new.due_at, moment.now), moment.now
FROM unnest(
        %(id)s::uuid[], %(trigger)s::text[], %(job_id)s::uuid[], %(job_name)s::text[], %(job_revision)s::int[],
        %(actor)s::text[], %(parent_id)s::uuid[], %(root_id)s::uuid[], %(retry_of_id)s::uuid[], %(script)s::text[],
        %(args)s::json[], %(kwargs)s::json[], %(pool)s::text[], %(priority)s::smallint[], %(timeout)s::interval[],
        %(max_attempts)s::int[], %(backoff)s::json[], %(tags)s::json[], %(key)s::text[], %(key_hash)s::bytea[],
        %(key_for)s::interval[], %(expires_at)s::timestamptz[], %(due_at)s::timestamptz[], %(waits)s::boolean[])
     AS new (id, trigger, job_id, job_name, job_revision, actor, parent_id, root_id, retry_of_id, script, args, kwargs,
             pool, priority, timeout, max_attempts, backoff, tags, key, key_hash, key_for, expires_at, due_at, waits),
     (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS moment
ON CONFLICT DO NOTHING
RETURNING id, status, created_at,
          CASE WHEN status = 'queued'
               THEN pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), priority::text) END AS woken
