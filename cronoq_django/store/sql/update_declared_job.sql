-- Keep a job of the code equal to its declaration. Left alone: one that is equal already (nothing is written), one that
-- the admin adopted, and one that a process started later declares otherwise. `enabled` is set once, so a pause stays;
-- but a job that had gone from the code (declared_at empty) and is back is enabled again.
-- Locks: the job's row if it differs, and not while somebody edits it: the leader must not wait for people.
-- Relies on: the unique name; the triggers count the revision.
WITH stale AS MATERIALIZED (
    SELECT job.id
    FROM cronoq_job AS job
    WHERE job.name = %(name)s AND job.source = 'code'
      AND (job.declared_at IS NULL
           OR job.declared_at <= %(declared_at)s
              AND (job.script, job.args::text, job.kwargs::text, job.kind, job.cron, job.timezone, job.every,
                   job.anchor, job.run_at, job.starts_at, job.ends_at, job.jitter, job.dst_gap, job.dst_repeat,
                   job.pool, job.priority, job.timeout, job.max_attempts, job.backoff::text, job.concurrency,
                   job.overlap, job.misfire, job.misfire_window, job.misfire_limit, job.pause_on_failure, job.description)
                  IS DISTINCT FROM
                  (%(script)s, %(args)s, %(kwargs)s, %(kind)s, %(cron)s, %(timezone)s, %(every)s::interval,
                   %(anchor)s::timestamptz, %(run_at)s::timestamptz, %(starts_at)s::timestamptz,
                   %(ends_at)s::timestamptz, %(jitter)s::interval, %(dst_gap)s, %(dst_repeat)s, %(pool)s,
                   %(priority)s, %(timeout)s::interval, %(max_attempts)s, %(backoff)s::text, %(concurrency)s,
                   %(overlap)s, %(misfire)s, %(misfire_window)s::interval, %(misfire_limit)s, %(pause_on_failure)s, %(description)s))
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_job AS job SET
    script = %(script)s, args = %(args)s::json, kwargs = %(kwargs)s::json, kind = %(kind)s, cron = %(cron)s,
    timezone = %(timezone)s, every = %(every)s::interval, anchor = %(anchor)s::timestamptz,
    run_at = %(run_at)s::timestamptz, starts_at = %(starts_at)s::timestamptz, ends_at = %(ends_at)s::timestamptz,
    jitter = %(jitter)s::interval, dst_gap = %(dst_gap)s, dst_repeat = %(dst_repeat)s, pool = %(pool)s,
    priority = %(priority)s, timeout = %(timeout)s::interval, max_attempts = %(max_attempts)s,
    backoff = %(backoff)s::json, concurrency = %(concurrency)s, overlap = %(overlap)s, misfire = %(misfire)s,
    misfire_window = %(misfire_window)s::interval, misfire_limit = %(misfire_limit)s, pause_on_failure = %(pause_on_failure)s, description = %(description)s,
    declared_at = %(declared_at)s,
    enabled = CASE WHEN job.declared_at IS NULL THEN %(enabled)s ELSE job.enabled END
FROM stale
WHERE job.id = stale.id
RETURNING job.id
