-- Begin a term: raise the epoch. This is the barrier: it waits for the predecessor's open transaction, and whatever
-- the predecessor begins later is refused by the fence. An upsert, since a test's flush may have emptied the table.
-- No row: the lock is not this backend's. (A role that was assumed does not see when its own session began.)
INSERT INTO cronoq_leader (id, epoch, term, coordinator, host, backend_pid, backend_start, acquired_at, renewed_at, ttl)
SELECT 1, 1, %(term)s::uuid, %(coordinator)s::uuid, %(host)s, pid,
       coalesce(backend_start, clock_timestamp()), clock_timestamp(), clock_timestamp(), %(ttl)s::interval
FROM pg_stat_activity
WHERE pid = pg_backend_pid()
  AND EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted)
ON CONFLICT (id) DO UPDATE
SET epoch = cronoq_leader.epoch + 1, term = excluded.term, coordinator = excluded.coordinator, host = excluded.host,
    backend_pid = excluded.backend_pid, backend_start = excluded.backend_start, acquired_at = clock_timestamp(),
    renewed_at = clock_timestamp(), ttl = excluded.ttl
RETURNING epoch
