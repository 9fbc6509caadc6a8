-- Put jobs that were set aside for an unknown script into the outbox, if somebody knows it by now.
-- Relies on: cronoq_job_state_error.
INSERT INTO cronoq_job_change (job, at)
SELECT job.id, clock_timestamp()
FROM cronoq_job_state AS state JOIN cronoq_job AS job ON job.id = state.job_id
WHERE state.error <> '' AND state.error LIKE 'script: %%'
  AND (job.script = ANY (%(known)s::text[])
       OR EXISTS (SELECT FROM cronoq_worker AS worker
                  WHERE worker.status = 'online' AND worker.last_heartbeat_at > clock_timestamp() - %(silence)s::interval
                    AND job.script = ANY (worker.scripts)))
