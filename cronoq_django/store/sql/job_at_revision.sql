-- A job as a snapshot of it says, without its JSON columns: the database reads what it wrote, but no \u0000 in nested JSON.
-- Columns that are younger than the snapshot keep their values of today.
SELECT past.id, past.name, past.script, past.source, past.enabled, past.kind, past.cron, past.timezone, past.every,
       past.anchor, past.run_at, past.starts_at, past.ends_at, past.jitter, past.dst_gap, past.dst_repeat,
       past.pool, past.priority, past.timeout, past.max_attempts, past.concurrency, past.overlap, past.misfire,
       past.misfire_window, past.misfire_limit, past.pause_on_failure, past.description, past.declared_at,
       past.revision, past.schedule_revision, past.schedule_changed_at, past.created_at, past.updated_at
FROM cronoq_job AS job CROSS JOIN LATERAL json_populate_record(job, %(snapshot)s::json) AS past
WHERE job.id = %(job)s
