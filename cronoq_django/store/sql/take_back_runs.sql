-- Take back runs from their owners: those whose lease ran out, or all of one worker that is known to be dead.
-- Locks: the rows it changes, skipping those being finished right now; so the order is free, and it is the index's: in id
-- order, stale statistics made this walk the whole primary key. Relies on: cronoq_run_running (partial index). Whatever
-- the old owner still sends is refused by its claim.
-- A lease also runs out when somebody holds the row for that long, in a console for example: it can't be renewed, and its
-- worker is alive. So a worker that was heard of within the last lease keeps what it has: its supervisor renews for it and
-- writes its heartbeat after that, for nobody who is dead or stopped.
-- A begun attempt counts as lost. Which had begun is known (`begun`, by claim) where a supervisor outlived its child.
-- Else the row tells, late: one that was not seen to begin does not count, and from then on each of its claims does (solo),
-- until an attempt ends by itself: one that kills worker and supervisor at once is not tried twice as often as allowed.
-- The same for one that was lost twice, or has one attempt left: see what a claim does with such suspects.
WITH expired AS MATERIALIZED (
    SELECT id, worker_id, claim, started_at, attempts, max_attempts, cancel_requested_at,
           coalesce(claim = ANY (%(begun)s::bigint[]), started_at IS NOT NULL) AS counts,
           coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    FROM cronoq_run AS run
    WHERE status = 'running'
      AND CASE WHEN %(worker)s::uuid IS NULL
               THEN lease_expires_at < coalesce(%(now)s::timestamptz, clock_timestamp())
                    AND NOT EXISTS (
                        SELECT FROM cronoq_worker AS owner
                        WHERE owner.id = run.worker_id AND owner.status IN ('online', 'draining')
                          AND owner.last_heartbeat_at > coalesce(%(now)s::timestamptz, clock_timestamp()) - %(lease)s::interval)
               ELSE worker_id = %(worker)s::uuid END
    ORDER BY worker_id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), decided AS (
    SELECT expired.*,
           CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN counts AND attempts + 1 >= least(max_attempts, 1000000000) THEN 'failed'
                ELSE 'queued' END AS status
    FROM expired
), changed AS (
    UPDATE cronoq_run AS run
    SET status = decided.status,
        reason = CASE decided.status WHEN 'cancelled' THEN 'requested' WHEN 'failed' THEN 'lost' ELSE '' END,
        attempts = least(run.attempts + decided.counts::int, 1000000000),
        error = CASE decided.status WHEN 'cancelled' THEN '' WHEN 'failed' THEN 'The worker was lost.' ELSE %(why)s END,
        claim = NULL,
        lease_expires_at = NULL,
        solo = decided.status = 'queued'
               AND (run.solo OR NOT decided.counts AND %(begun)s::bigint[] IS NULL
                    OR decided.counts AND (run.attempts > 0 OR run.max_attempts <= 2)),
        started_at = CASE WHEN decided.status = 'queued' THEN NULL
                          WHEN decided.counts THEN coalesce(run.started_at, decided.now) ELSE run.started_at END,
        due_at = CASE WHEN decided.status = 'queued' THEN decided.now ELSE run.due_at END,
        finished_at = CASE WHEN decided.status <> 'queued' THEN decided.now END,
        key_held = run.key_held AND (decided.status = 'queued' OR run.key_for IS NOT NULL),
        key_until = CASE WHEN decided.status <> 'queued' THEN decided.now + run.key_for END
    FROM decided
    WHERE run.id = decided.id
    RETURNING run.id, run.status, run.pool, run.priority
), noted AS (
    INSERT INTO cronoq_attempt (run_id, number, worker_id, claim, started_at, ended_at, outcome, error)
    SELECT id, attempts + 1, worker_id, claim, coalesce(started_at, now), now,
           CASE WHEN counts THEN 'lost' ELSE 'released' END, CASE WHEN counts THEN 'The worker was lost.' ELSE %(why)s END
    FROM decided
    WHERE counts OR started_at IS NOT NULL
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), max(priority)::text)
    FROM changed WHERE status = 'queued' GROUP BY pool
)
SELECT id, status, (SELECT count(*) FROM woken) AS woken FROM changed
