-- The runs in the way of new ones: of the same id, or holding the same key; which key each holds, and whether its time
-- with it is over. A statement of its own, after the insert: only then does it see what that one waited for.
-- Relies on: the primary key, cronoq_run_key.
SELECT id, created_at, CASE WHEN key_held THEN key_hash END AS holds,
       key_held AND finished_at IS NOT NULL AND key_until <= coalesce(%(now)s::timestamptz, statement_timestamp()) AS is_over
FROM cronoq_run
WHERE id = ANY (%(ids)s::uuid[]) OR (key_held AND key_hash = ANY (%(hashes)s::bytea[]))
