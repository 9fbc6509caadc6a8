-- Renew the lease of one run, for whoever holds its claim. lease_expires_at is in no index, so this is a HOT update.
-- Locks: its row, unless somebody else has it. Relies on: the primary key; a run carries a claim exactly while it runs.
WITH held AS MATERIALIZED (
    SELECT id FROM cronoq_run WHERE id = %(id)s AND claim = %(claim)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_run AS run
SET lease_expires_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(lease)s::interval
FROM held
WHERE run.id = held.id
RETURNING run.id
