-- Lock the states of due jobs and read their jobs. The job itself is not locked: somebody's open edit must not stop
-- its firing. `now` is a constant to the planner: compared with clock_timestamp(), which is volatile, no index was used,
-- and each tick read the states of all jobs. A state planned for another schedule revision waits for `plan`; one with an
-- error waits for an edit. Of the arguments, the type and the stored size.
-- Locks: the states, skipping those another coordinator holds. Relies on: cronoq_job_state_due, cronoq_run_job_open.
SELECT state.job_id, state.next_run_at, job.name, job.script,
       json_typeof(job.args) AS args, json_typeof(job.kwargs) AS kwargs,
       pg_column_size(job.args) + pg_column_size(job.kwargs) AS size,
       job.kind, job.cron, job.timezone, job.every, job.anchor, job.created_at, job.run_at, job.starts_at, job.ends_at,
       job.jitter, job.dst_gap, job.dst_repeat, job.concurrency, job.overlap, job.misfire, job.misfire_window,
       job.misfire_limit,
       CASE WHEN job.overlap = 'allow' THEN 0 ELSE (
           SELECT count(*) FROM (
               SELECT FROM cronoq_run AS run
               WHERE run.job_id = state.job_id AND run.status IN ('blocked', 'scheduled', 'queued', 'running')
               LIMIT greatest(job.concurrency, 1000)) AS counted) END AS open_runs,
       %(now)s::timestamptz AS now
FROM cronoq_job_state AS state JOIN cronoq_job AS job ON job.id = state.job_id
WHERE state.next_run_at <= %(now)s::timestamptz
  AND state.error = '' AND state.planned_revision = job.schedule_revision AND job.enabled
ORDER BY state.next_run_at, state.job_id
LIMIT %(limit)s
FOR NO KEY UPDATE OF state SKIP LOCKED
