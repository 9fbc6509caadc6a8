-- Pause the jobs that want to be when a run of theirs has failed since they were last resumed or rescheduled.
-- Locks: its rows, in id order, skipping those that somebody edits. Relies on: cronoq_job_pausing, cronoq_run_slot.
WITH failing AS MATERIALIZED (
    SELECT job.id
    FROM cronoq_job AS job
    WHERE job.pause_on_failure AND job.enabled
      AND EXISTS (
        SELECT FROM (
            SELECT status, finished_at FROM cronoq_run
            WHERE job_id = job.id AND trigger = 'slot'
            ORDER BY scheduled_for DESC
            LIMIT 20) AS recent
        WHERE recent.status = 'failed' AND recent.finished_at > job.schedule_changed_at)
    ORDER BY job.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE cronoq_job AS job SET enabled = false FROM failing WHERE job.id = failing.id RETURNING job.name
