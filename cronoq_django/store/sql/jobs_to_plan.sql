-- The jobs to plan, with what their states say now. No locks on the jobs.
SELECT job.id AS job_id, job.name, job.enabled, job.schedule_revision, job.schedule_changed_at, job.script,
       json_typeof(job.args) AS args, json_typeof(job.kwargs) AS kwargs,
       job.kind, job.cron, job.timezone, job.every, job.anchor, job.created_at, job.run_at, job.starts_at, job.ends_at,
       job.jitter, job.dst_gap, job.dst_repeat, job.concurrency, job.overlap, job.misfire, job.misfire_window,
       job.misfire_limit, state.next_run_at, state.last_slot,
       coalesce(state.error, '') AS error, state.job_id IS NOT NULL AS is_planned, coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
FROM cronoq_job AS job LEFT JOIN cronoq_job_state AS state ON state.job_id = job.id
WHERE job.id = ANY (%(ids)s::uuid[])
ORDER BY job.id
