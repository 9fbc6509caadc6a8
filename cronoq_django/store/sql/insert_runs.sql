-- Add runs, in the caller's transaction, and wake the workers of the pools where some are due now.
-- Locks: nothing but the new rows. Waits, if another transaction has just inserted the same key, until that one ends. A
-- row whose id exists, or whose key somebody holds, is not inserted: the caller is told, and looks (held_runs.sql).
-- NOTIFY is delivered by the commit, once per pool.
WITH inserted AS (
    INSERT INTO cronoq_run (
        id, trigger, job_id, job_name, job_revision, actor, parent_id, root_id, retry_of_id, script, args, kwargs, pool,
        priority, timeout, max_attempts, backoff, tags, key, key_hash, key_held, key_for, expires_at, status, due_at,
        created_at)
    SELECT
        new.id, new.trigger, new.job_id, coalesce(new.job_name, ''), new.job_revision, coalesce(new.actor, ''),
        new.parent_id, new.root_id, new.retry_of_id, new.script, new.args::json, new.kwargs::json, new.pool,
        new.priority, new.timeout, new.max_attempts, new.backoff::json,
        CASE WHEN new.tags IS NOT NULL THEN ARRAY(SELECT json_array_elements_text(new.tags::json)) END,
        new.key, new.key_hash, new.key_hash IS NOT NULL,
        -- In seconds: a day added to an instant is 23 hours long when the session's zone springs forward.
        extract(epoch FROM new.key_for) * interval '1 second', new.expires_at,
        CASE WHEN new.waits THEN 'blocked' WHEN new.due_at > moment.now THEN 'scheduled' ELSE 'queued' END,
        coalesce(new.due_at, moment.now), moment.now
    FROM json_to_recordset(%(runs)s::json) AS new (
             id uuid, trigger text, job_id uuid, job_name text, job_revision int, actor text, parent_id uuid,
             root_id uuid, retry_of_id uuid, script text, args text, kwargs text, pool text, priority smallint,
             timeout interval, max_attempts int, backoff text, tags text, key text, key_hash bytea, key_for interval,
             expires_at timestamptz, due_at timestamptz, waits boolean),
         (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS moment
    ON CONFLICT DO NOTHING
    RETURNING id, status, pool, priority, created_at
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), max(priority)::text)
    FROM inserted WHERE status = 'queued' GROUP BY pool
)
-- All were inserted, as a rule; their ids are known.
SELECT (SELECT min(created_at) FROM inserted),
       CASE WHEN (SELECT count(*) FROM inserted) < %(count)s THEN ARRAY(SELECT id FROM inserted) END,
       (SELECT count(*) FROM woken)
