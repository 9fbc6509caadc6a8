-- Take the next job changes out of the outbox. Locks: its rows, skipping those taken elsewhere.
DELETE FROM cronoq_job_change
WHERE id IN (SELECT id FROM cronoq_job_change ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING job
