-- Put the jobs that no state was planned for, or one of another schedule revision, into the outbox again.
INSERT INTO cronoq_job_change (job, at)
SELECT job.id, clock_timestamp()
FROM cronoq_job AS job LEFT JOIN cronoq_job_state AS state ON state.job_id = job.id
WHERE state.planned_revision IS DISTINCT FROM job.schedule_revision
  AND NOT EXISTS (SELECT FROM cronoq_job_change AS change WHERE change.job = job.id)
