-- Note how a stage went. Locks: its row, unless somebody else holds it: leading must not wait for bookkeeping.
WITH free AS MATERIALIZED (
    SELECT name FROM cronoq_stage WHERE name = %(name)s FOR NO KEY UPDATE SKIP LOCKED
), noted AS (
    UPDATE cronoq_stage AS stage
    SET epoch = %(epoch)s, last_run_at = clock_timestamp(), duration = %(duration)s, rows = %(rows)s, error = %(error)s,
        error_at = CASE WHEN %(error)s <> '' THEN clock_timestamp() ELSE stage.error_at END
    FROM free WHERE stage.name = free.name
)
INSERT INTO cronoq_stage (name, epoch, last_run_at, duration, rows, error, error_at)
SELECT %(name)s, %(epoch)s, clock_timestamp(), %(duration)s, %(rows)s, %(error)s,
       CASE WHEN %(error)s <> '' THEN clock_timestamp() END
WHERE NOT EXISTS (SELECT FROM cronoq_stage WHERE name = %(name)s)
ON CONFLICT DO NOTHING
