-- Lock runs that ended long ago, to be removed by the next statement.
-- Locks: its rows, skipping those that somebody holds. Relies on: cronoq_run_finished (partial index), walked from where
-- the last walk ended: what is kept longer than other states would else be walked each time.
-- Stays: what holds a key, and what a run that still waits depends on.
SELECT run.id
FROM cronoq_run AS run
WHERE run.finished_at >= coalesce(%(since)s::timestamptz, '-infinity') AND run.finished_at < %(before)s::timestamptz
  AND run.status = %(status)s AND NOT run.key_held
  AND NOT EXISTS (SELECT FROM cronoq_dependency AS needed
                  WHERE needed.prerequisite_id = run.id AND needed.settled_at IS NULL)
ORDER BY run.finished_at
LIMIT %(limit)s
FOR UPDATE OF run SKIP LOCKED
