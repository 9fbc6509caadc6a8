-- What one worker owns. Relies on: cronoq_run_running (partial index).
SELECT id, claim, script, args::text, kwargs::text, pool, priority, due_at, attempts, max_attempts, backoff::text, timeout,
       job_name, scheduled_for, created_at, root_id
FROM cronoq_run
WHERE worker_id = %(worker)s AND status = 'running'
