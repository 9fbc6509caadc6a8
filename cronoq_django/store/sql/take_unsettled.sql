-- Take prerequisites out of the outbox: those of them that have ended, or are gone. One that goes on has nothing to settle;
-- but it may be ending right now, by somebody who can't have seen what waits for it: if it can't be locked for a
-- moment, FOR SHARE, it comes back. So each is looked at until nothing can have been missed, and then never again.
-- Waits for nobody. The ARRAY is evaluated once; an IN could be evaluated anew for each row, and take all of them.
WITH taken AS MATERIALIZED (
    DELETE FROM cronoq_unsettled
    WHERE id = ANY (ARRAY(SELECT id FROM cronoq_unsettled ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING run
), prerequisites AS MATERIALIZED (
    SELECT DISTINCT taken.run AS id, run.id IS NOT NULL AND run.finished_at IS NULL AS goes_on
    FROM taken LEFT JOIN cronoq_run AS run ON run.id = taken.run
), held AS MATERIALIZED (
    SELECT id FROM cronoq_run
    WHERE id = ANY (ARRAY(SELECT id FROM prerequisites WHERE goes_on)) AND finished_at IS NULL
    ORDER BY id
    FOR SHARE SKIP LOCKED
), put_back AS (
    INSERT INTO cronoq_unsettled (run)
    SELECT id FROM prerequisites WHERE goes_on AND id NOT IN (SELECT id FROM held)
    RETURNING run
)
SELECT (SELECT count(*) FROM taken), (SELECT count(*) FROM put_back), ARRAY(SELECT id FROM prerequisites WHERE NOT goes_on)
