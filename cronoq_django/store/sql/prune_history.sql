-- Remove all but the last 100 revisions of a job, and terms, stopped workers and coordinators older than a month.
WITH numbered AS (
    SELECT id, row_number() OVER (PARTITION BY job_id ORDER BY number DESC) AS place FROM cronoq_job_revision
), revisions AS (
    DELETE FROM cronoq_job_revision WHERE id IN (SELECT id FROM numbered WHERE place > 100) RETURNING id
), terms AS (
    DELETE FROM cronoq_leader_term WHERE until_at < clock_timestamp() - interval '30 days' RETURNING term
), workers AS (
    DELETE FROM cronoq_worker AS worker
    WHERE status IN ('stopped', 'lost') AND last_heartbeat_at < clock_timestamp() - interval '30 days'
      AND NOT EXISTS (SELECT FROM cronoq_run WHERE worker_id = worker.id AND status = 'running')
    RETURNING id
), coordinators AS (
    DELETE FROM cronoq_coordinator
    WHERE status IN ('stopped', 'lost') AND last_heartbeat_at < clock_timestamp() - interval '30 days'
    RETURNING id
), stats AS (
    DELETE FROM cronoq_stat WHERE minute < clock_timestamp() - interval '30 days' RETURNING id
)
SELECT (SELECT count(*) FROM revisions) + (SELECT count(*) FROM terms) + (SELECT count(*) FROM workers)
     + (SELECT count(*) FROM coordinators) + (SELECT count(*) FROM stats)
