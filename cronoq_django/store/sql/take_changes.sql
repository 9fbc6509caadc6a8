-- Take the next job changes out of the outbox. Locks: its rows, skipping those taken elsewhere. The ARRAY is evaluated
-- once: an IN was evaluated anew for each row, and took thousands instead of the limit.
DELETE FROM cronoq_job_change
WHERE id = ANY (ARRAY(SELECT id FROM cronoq_job_change ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
RETURNING job
