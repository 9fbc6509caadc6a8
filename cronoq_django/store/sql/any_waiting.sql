-- Whether a run of a job waits. Relies on: cronoq_run_job_open.
SELECT EXISTS (
    SELECT FROM cronoq_run WHERE job_id = %(job)s AND status IN ('blocked', 'scheduled', 'queued'))
