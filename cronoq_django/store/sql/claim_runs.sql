-- Claim the next runs of one pool: highest priority first, then the longest due.
-- Locks: the rows it takes, skipping those another claimer is taking.
-- Relies on: cronoq_run_queued (partial index, in this order), from the marks on: what lies before them are the entries of
-- runs claimed long ago, which an old transaction anywhere keeps from being removed (100,000 of them halved the speed).
-- MATERIALIZED: with IN (SELECT … LIMIT n) a nested loop claimed more than n. FOR NO KEY UPDATE: FOR UPDATE would wait
-- for an open transaction that refers to the row.
-- A claim counts as begun where that must not be missed: if the run was lost once without being seen to begin, and at
-- the last attempt, which a worker that dies at once would get again. Such a run is only claimed to begin at once: what
-- is claimed beyond `free` ends before the first of them.
-- A suspect was lost twice, or was lost and has no attempt left but this one: it, or what was beside it, kills workers. It
-- is claimed with no other suspect, and not by who has one already (`suspects`): else they came back together, died
-- together, and what was only beside it failed with it.
WITH locked AS MATERIALIZED (
    SELECT run.*
    FROM unnest(%(priorities)s::smallint[], %(dues)s::timestamptz[], %(ids)s::uuid[]) AS mark (priority, due_at, id)
    CROSS JOIN LATERAL (
        SELECT id, priority, due_at, solo OR attempts + 1 >= max_attempts AS counts,
               solo AND (attempts >= 2 OR attempts + 1 >= max_attempts) AS suspect
        FROM cronoq_run
        WHERE status = 'queued' AND pool = %(pool)s AND priority = mark.priority
          AND (due_at, id) >= (mark.due_at, mark.id)
          AND script <> ALL (%(excluded)s::text[])
          AND (%(suspects)s OR NOT (solo AND (attempts >= 2 OR attempts + 1 >= max_attempts)))
          AND (expires_at IS NULL OR expires_at > coalesce(%(now)s::timestamptz, clock_timestamp())
               OR attempts > 0 OR started_at IS NOT NULL)  -- begun before its deadline
        ORDER BY due_at, id
        LIMIT %(limit)s
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS run
    WHERE NOT EXISTS (SELECT FROM cronoq_pool WHERE name = %(pool)s AND paused)
    LIMIT %(limit)s
), picked AS (
    SELECT id, counts, suspect, count(*) FILTER (WHERE counts AND place > %(free)s) OVER (ORDER BY place) AS beyond,
           suspect AND count(*) FILTER (WHERE suspect) OVER (ORDER BY place) > 1 AS waits
    FROM (SELECT *, row_number() OVER (ORDER BY priority DESC, due_at, id) AS place FROM locked) AS placed
)
UPDATE cronoq_run AS run
SET status = 'running', worker_id = %(worker)s, claim = nextval('cronoq_claim'),
    lease_expires_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(lease)s::interval,
    started_at = CASE WHEN picked.counts THEN coalesce(%(now)s::timestamptz, clock_timestamp()) END
FROM picked
WHERE run.id = picked.id AND picked.beyond = 0 AND NOT picked.waits
RETURNING run.id, run.claim, run.script, run.args::text AS args, run.kwargs::text AS kwargs, run.pool, run.priority,
          run.due_at, run.attempts, run.max_attempts, run.backoff::text AS backoff, run.timeout, run.job_name,
          run.scheduled_for, run.created_at, run.root_id, picked.suspect
