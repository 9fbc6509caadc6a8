-- Disable the jobs of the code that no live coordinator declares any more. Never deleted: history and adoption stay.
-- Locks: its rows, in id order, skipping those that somebody edits. Relies on: heartbeats, so that old and new code side by side don't take turns.
WITH gone AS MATERIALIZED (
    SELECT job.id
    FROM cronoq_job AS job
    WHERE job.source = 'code' AND job.declared_at IS NOT NULL
      AND NOT EXISTS (
        SELECT FROM cronoq_coordinator AS coordinator
        WHERE coordinator.status IN ('leading', 'standby', 'ticking')
          AND coordinator.last_heartbeat_at > clock_timestamp() - %(silence)s::interval
          AND job.name = ANY (coordinator.declares))
    ORDER BY job.id
    FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE cronoq_job AS job SET enabled = false, declared_at = NULL FROM gone WHERE job.id = gone.id RETURNING job.name
