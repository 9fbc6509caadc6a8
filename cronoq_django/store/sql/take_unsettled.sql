-- Take waiting runs out of the outbox, and lock them for the next statement (settle_runs.sql).
-- Also locks, FOR SHARE, what they wait for: a prerequisite that is being ended right now, by somebody who can't have
-- seen this run, makes it come back to the outbox, as does one that somebody holds. So each is looked at until nothing
-- can have been missed, and then never again. Waits for nobody.
WITH taken AS MATERIALIZED (
    DELETE FROM cronoq_unsettled
    WHERE id IN (SELECT id FROM cronoq_unsettled ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
    RETURNING run
), locked AS MATERIALIZED (
    SELECT id FROM cronoq_run
    WHERE id IN (SELECT run FROM taken) AND status = 'blocked'
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
), needed AS MATERIALIZED (
    SELECT run_id, prerequisite_id FROM cronoq_dependency
    WHERE run_id IN (SELECT id FROM locked) AND settled_at IS NULL
), held AS MATERIALIZED (
    SELECT id FROM cronoq_run WHERE id IN (SELECT prerequisite_id FROM needed) ORDER BY id FOR SHARE SKIP LOCKED
), again AS (
    SELECT run AS id FROM taken
    WHERE run NOT IN (SELECT id FROM locked)
      AND EXISTS (SELECT FROM cronoq_run WHERE id = taken.run AND status = 'blocked')
    UNION
    SELECT run_id FROM needed
    WHERE prerequisite_id NOT IN (SELECT id FROM held)
      AND EXISTS (SELECT FROM cronoq_run WHERE id = needed.prerequisite_id)
), put_back AS (
    INSERT INTO cronoq_unsettled (run) SELECT id FROM again
)
SELECT (SELECT count(*) FROM taken), (SELECT count(*) FROM again), ARRAY(SELECT id FROM locked)
