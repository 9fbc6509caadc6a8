-- Write the outcomes of attempts. Each counts only while its claim is the run's current one: a zombie's is dropped.
-- Locks: its rows, in id order, skipping those that somebody else holds: one locked run must not hold up the others.
-- Relies on: the primary key (a planner that sees status = 'running' walks the dead entries of the partial index). A run
-- carries a claim exactly while it is running, so the claim is the whole test; a batch may hold outcomes of two claims.
-- A requested cancel wins over everything but success. Returns what was accepted, and what is busy: to be sent again.
WITH given AS (
    SELECT *
    FROM json_to_recordset(%(completions)s::json) AS given (
        id uuid, claim bigint, outcome text, status text, reason text, result text, error text, exception_class text,
        traceback text, counts boolean, delay interval, took interval)
), owned AS MATERIALIZED (
    SELECT run.id, run.claim, run.worker_id, run.attempts, run.started_at, run.cancel_requested_at,
           given.outcome, given.result, given.error, given.exception_class, given.traceback, given.counts, given.delay,
           given.took, given.status, given.reason, coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    FROM cronoq_run AS run JOIN given ON run.id = given.id AND run.claim = given.claim
    ORDER BY run.id
    FOR NO KEY UPDATE OF run SKIP LOCKED
), ended AS (
    SELECT id, claim, worker_id, attempts, started_at, outcome, result, error, exception_class, traceback, counts, delay,
           took, now,
           CASE WHEN cancel_requested_at IS NOT NULL AND status <> 'succeeded' THEN 'cancelled'
                WHEN status = 'queued' AND delay > interval '0' THEN 'scheduled'
                ELSE status END AS status,
           CASE WHEN cancel_requested_at IS NOT NULL AND status <> 'succeeded' THEN 'requested' ELSE reason END AS reason
    FROM owned
), changed AS (
    UPDATE cronoq_run AS run
    SET status = ended.status,
        reason = ended.reason,
        attempts = least(run.attempts + ended.counts::int, 1000000000),  -- as many as the table takes
        result = ended.result::json,
        error = ended.error,
        claim = NULL,
        lease_expires_at = NULL,
        solo = run.solo AND ended.outcome = 'released',
        due_at = CASE WHEN ended.status IN ('queued', 'scheduled')
                           AND NOT (ended.outcome = 'released' AND ended.delay = interval '0')  -- keeps its place
                      -- In seconds: a day added to a timestamp is 23 hours long when the session's zone springs forward.
                      THEN ended.now + extract(epoch FROM ended.delay) * interval '1 second' ELSE run.due_at END,
        started_at = coalesce(run.started_at, ended.now - ended.took),
        finished_at = CASE WHEN ended.status NOT IN ('queued', 'scheduled') THEN ended.now END,
        key_held = run.key_held AND (ended.status IN ('queued', 'scheduled') OR run.key_for IS NOT NULL),
        key_until = CASE WHEN ended.status NOT IN ('queued', 'scheduled') THEN ended.now + run.key_for END
    FROM ended
    WHERE run.id = ended.id
    RETURNING run.id, ended.claim, run.status, run.pool, run.priority
), noted AS (
    -- Took is what the attempt used; a released claim that never began has none and is no attempt.
    INSERT INTO cronoq_attempt (run_id, number, worker_id, claim, started_at, ended_at, outcome, exception_class, error, traceback)
    SELECT id, attempts + 1, worker_id, claim, coalesce(started_at, now - took), now, outcome, exception_class, error, traceback
    FROM ended
    WHERE took IS NOT NULL AND NOT (outcome = 'succeeded' AND attempts = 0)
), woken AS (
    SELECT pg_notify(cronoq_channel(current_schema(), 'pool:' || pool), max(priority)::text)
    FROM changed WHERE status = 'queued' GROUP BY pool
)
SELECT id, claim, status, (SELECT count(*) FROM woken) AS woken FROM changed
UNION ALL
SELECT run.id, run.claim, NULL, 0
FROM cronoq_run AS run JOIN given ON run.id = given.id AND run.claim = given.claim
WHERE (SELECT count(*) FROM owned) < (SELECT count(*) FROM given)  -- as a rule none is busy, and nothing is looked for
  AND NOT EXISTS (SELECT FROM owned WHERE owned.id = run.id)
