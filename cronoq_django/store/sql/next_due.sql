-- The nearest instant at which the leader has something to do, as seconds from now. Relies on: the two due indexes.
SELECT extract(epoch FROM least(
    (SELECT min(next_run_at) FROM cronoq_job_state WHERE error = '' AND next_run_at > clock_timestamp() - interval '1 minute'),
    (SELECT min(due_at) FROM cronoq_run WHERE status = 'scheduled')
) - clock_timestamp())::float8
