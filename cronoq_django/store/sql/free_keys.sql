-- Take the key from runs that ended, and kept it long enough: from these, or (as `expire` does) from all.
-- Locks: its rows, skipping those that somebody holds: whoever frees the same key. Relies on: the primary key, or
-- cronoq_run_key_until (partial index).
WITH over AS MATERIALIZED (
    SELECT id FROM cronoq_run
    WHERE (%(ids)s::uuid[] IS NULL OR id = ANY (%(ids)s::uuid[])) AND key_held AND finished_at IS NOT NULL
      AND key_until <= coalesce(%(now)s::timestamptz, statement_timestamp())
    ORDER BY key_until
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_run AS run SET key_held = false FROM over WHERE run.id = over.id
