-- The sessions that have locked rows or all of cronoq_leader, for a candidate that waited for one of them in vain.
SELECT pid, coalesce(nullif(application_name, ''), 'a session without a name') AS name, xact_start
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE relation = 'cronoq_leader'::regclass AND granted AND mode <> 'AccessShareLock' AND pid <> pg_backend_pid()
ORDER BY pid
LIMIT 5
