-- What one worker owns. Relies on: cronoq_run_running (partial index).
SELECT id, claim FROM cronoq_run WHERE worker_id = %(worker)s AND status = 'running'
