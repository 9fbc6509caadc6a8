-- Note that claimed runs have begun, so that an attempt lost with its worker counts.
-- Locks: its rows, in id order, skipping those that somebody else holds. Relies on: the primary key. The claim proves ownership; a stale one changes nothing.
WITH begun AS MATERIALIZED (
    SELECT run.id, given.ago
    FROM unnest(%(ids)s::uuid[], %(claims)s::bigint[], %(ago)s::interval[]) AS given (id, claim, ago)
    JOIN cronoq_run AS run ON run.id = given.id AND run.claim = given.claim
    WHERE run.started_at IS NULL
    ORDER BY run.id
    FOR NO KEY UPDATE OF run SKIP LOCKED
)
UPDATE cronoq_run AS run
SET started_at = clock_timestamp() - begun.ago
FROM begun
WHERE run.id = begun.id
RETURNING run.id, run.claim
