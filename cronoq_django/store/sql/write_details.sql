-- Keep what runs say of themselves, as long as they are their owner's. Locks: nothing but the details' own rows.
INSERT INTO cronoq_run_detail (run_id, progress_done, progress_total, message, log)
SELECT run.id, given.progress_done, given.progress_total, given.message, given.log
FROM json_to_recordset(%(details)s::json) AS given (
         id uuid, claim bigint, progress_done bigint, progress_total bigint, message text, log text)
JOIN cronoq_run AS run ON run.id = given.id AND run.claim = given.claim
ORDER BY run.id
ON CONFLICT (run_id) DO UPDATE
SET progress_done = excluded.progress_done, progress_total = excluded.progress_total, message = excluded.message,
    log = excluded.log
