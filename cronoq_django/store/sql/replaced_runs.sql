-- The open runs that a newer slot of their job replaces: all but the newest, as many as its concurrency has no room for.
-- Relies on: cronoq_run_blocked, cronoq_run_job_open.
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT job_id FROM cronoq_run WHERE status = 'blocked' AND job_id IS NOT NULL AND trigger = 'slot'
), numbered AS (
    SELECT run.id, run.status, run.cancel_requested_at, job.concurrency,
           row_number() OVER (PARTITION BY run.job_id ORDER BY run.scheduled_for DESC NULLS LAST, run.id DESC) AS place
    FROM waiting
    JOIN cronoq_job AS job ON job.id = waiting.job_id AND job.overlap = 'replace'
    JOIN cronoq_run AS run ON run.job_id = waiting.job_id
    WHERE run.status IN ('blocked', 'scheduled', 'queued', 'running')
)
SELECT id, status FROM numbered
WHERE place > concurrency AND cancel_requested_at IS NULL
ORDER BY id
LIMIT %(limit)s
