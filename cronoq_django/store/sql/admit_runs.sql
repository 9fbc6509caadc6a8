-- Let runs that wait for their job's earlier ones begin, as many as its concurrency has room for, the oldest slots first.
-- Only the leader makes such runs and admits them, so that nobody else can take the room that is counted here.
-- Locks: its rows, in id order, skipping those being cancelled right now. Relies on: cronoq_run_blocked, cronoq_run_job_open.
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT job_id FROM cronoq_run WHERE status = 'blocked' AND job_id IS NOT NULL AND trigger = 'slot'
), room AS MATERIALIZED (
    SELECT job.id AS job_id,
           CASE WHEN job.overlap = 'allow' THEN %(limit)s
                ELSE greatest(0, job.concurrency - (
                    SELECT count(*) FROM cronoq_run AS run
                    WHERE run.job_id = job.id AND run.status IN ('scheduled', 'queued', 'running'))) END AS places
    FROM waiting JOIN cronoq_job AS job ON job.id = waiting.job_id
), picked AS MATERIALIZED (
    SELECT run.id
    FROM room CROSS JOIN LATERAL (
        SELECT id FROM cronoq_run
        WHERE job_id = room.job_id AND status = 'blocked' AND trigger = 'slot'
        ORDER BY scheduled_for
        LIMIT room.places) AS run
    LIMIT %(limit)s
), locked AS MATERIALIZED (
    SELECT id FROM cronoq_run
    WHERE id IN (SELECT id FROM picked) AND status = 'blocked'
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
), admitted AS (
    UPDATE cronoq_run AS run
    SET status = CASE WHEN run.due_at > coalesce(%(now)s::timestamptz, clock_timestamp()) THEN 'scheduled' ELSE 'queued' END
    FROM locked WHERE run.id = locked.id
    RETURNING run.status, run.pool, run.priority
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), max(priority)::text)
    FROM admitted WHERE status = 'queued' GROUP BY pool
)
SELECT (SELECT count(*) FROM admitted) AS rows, (SELECT count(*) FROM woken) AS woken
