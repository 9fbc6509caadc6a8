-- Make the job that code declares, if there is none of that name.
-- Looks first: ON CONFLICT alone waits for whoever edits the existing one.
INSERT INTO cronoq_job (
    id, name, script, args, kwargs, source, enabled, kind, cron, timezone, every, anchor, run_at, starts_at, ends_at,
    jitter, dst_gap, dst_repeat, pool, priority, timeout, max_attempts, backoff, concurrency, overlap, misfire,
    misfire_window, misfire_limit, pause_on_failure, description, declared_at)
SELECT
    %(id)s, %(name)s, %(script)s, %(args)s::json, %(kwargs)s::json, 'code', %(enabled)s, %(kind)s, %(cron)s,
    %(timezone)s, %(every)s::interval, %(anchor)s::timestamptz, %(run_at)s::timestamptz, %(starts_at)s::timestamptz,
    %(ends_at)s::timestamptz, %(jitter)s::interval, %(dst_gap)s, %(dst_repeat)s, %(pool)s, %(priority)s,
    %(timeout)s::interval, %(max_attempts)s, %(backoff)s::json, %(concurrency)s, %(overlap)s, %(misfire)s,
    %(misfire_window)s::interval, %(misfire_limit)s, %(pause_on_failure)s, %(description)s, %(declared_at)s
WHERE NOT EXISTS (SELECT FROM cronoq_job WHERE name = %(name)s)
ON CONFLICT (name) DO NOTHING
RETURNING id
