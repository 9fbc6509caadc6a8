-- What there is to do for a leader, at one look that changes nothing: whether it still leads, what each prompt stage has
-- to do, and the nearest instant at which there will be more, as seconds from now. (A fenced transaction for each stage
-- drew twelve transaction ids a second from the whole server, for nothing.)
-- Relies on: cronoq_job_state_due, cronoq_run_scheduled, cronoq_run_blocked, cronoq_run_expires, cronoq_run_key_until.
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), slot AS MATERIALIZED (
    SELECT min(next_run_at) AS due FROM cronoq_job_state
    WHERE error = '' AND next_run_at > statement_timestamp() - interval '1 minute'
), run AS MATERIALIZED (
    SELECT min(due_at) AS due FROM cronoq_run WHERE status = 'scheduled'
)
SELECT EXISTS (SELECT FROM cronoq_leader WHERE epoch = %(epoch)s AND term = %(term)s AND backend_pid = pg_backend_pid()),
       EXISTS (SELECT FROM cronoq_job_change),
       EXISTS (SELECT FROM cronoq_job_state WHERE error = '' AND next_run_at <= statement_timestamp()),
       run.due <= moment.now,
       EXISTS (SELECT FROM cronoq_run WHERE status = 'blocked' AND job_id IS NOT NULL),
       EXISTS (SELECT FROM cronoq_unsettled),
       EXISTS (SELECT FROM cronoq_run
               WHERE expires_at <= statement_timestamp() AND finished_at IS NULL
                 AND status IN ('blocked', 'scheduled', 'queued') AND attempts = 0 AND started_at IS NULL)
       OR EXISTS (SELECT FROM cronoq_run
                  WHERE key_until <= statement_timestamp() AND key_held AND finished_at IS NOT NULL),
       extract(epoch FROM least(slot.due, run.due) - moment.now)::float8
FROM moment, slot, run
