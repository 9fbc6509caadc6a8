-- Make the runs of slots, all else taken from their jobs as they are now: arguments never leave the server.
-- Locks: nothing but the new rows. A slot that has its run already, from a predecessor whose commit was not heard of,
-- stays as it is. NOTIFY is delivered by the commit, once per pool and priority.
INSERT INTO cronoq_run (
    id, trigger, job_id, job_name, job_revision, scheduled_for, script, args, kwargs, pool, priority, timeout,
    max_attempts, backoff, status, reason, error, due_at, finished_at, created_at, epoch)
SELECT
    slot.id, 'slot', job.id, job.name, job.revision, slot.scheduled_for, job.script, job.args, job.kwargs, job.pool,
    job.priority, job.timeout, job.max_attempts, job.backoff,
    CASE WHEN slot.status IS NOT NULL THEN slot.status WHEN slot.due_at > moment.now THEN 'scheduled' ELSE 'queued' END,
    coalesce(slot.reason, ''), coalesce(slot.error, ''), slot.due_at, CASE WHEN slot.status = 'skipped' THEN moment.now END, moment.now, %(epoch)s
FROM json_to_recordset(%(slots)s::json) AS slot (
         id uuid, job_id uuid, scheduled_for timestamptz, due_at timestamptz, status text, reason text, error text)
JOIN cronoq_job AS job ON job.id = slot.job_id
CROSS JOIN (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS moment
ON CONFLICT DO NOTHING
RETURNING CASE WHEN status = 'queued'
               THEN pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), priority::text) END
