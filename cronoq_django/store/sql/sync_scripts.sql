-- Record the scripts that this process knows; equal ones are touched once an hour only, for last_seen_at.
-- Locks: the rows that differ, in name order, skipping those that somebody holds. Looks first: ON CONFLICT would wait.
WITH given AS (
    SELECT * FROM json_to_recordset(%(scripts)s::json) AS given (name text, signature text, signature_hash text, doc text)
), stale AS MATERIALIZED (
    SELECT script.name
    FROM cronoq_script AS script JOIN given ON given.name = script.name
    WHERE (script.signature_hash, script.doc) IS DISTINCT FROM (given.signature_hash, given.doc)
       OR script.last_seen_at < clock_timestamp() - interval '1 hour'
    ORDER BY script.name
    FOR NO KEY UPDATE OF script SKIP LOCKED
), changed AS (
    UPDATE cronoq_script AS script
    SET signature = given.signature, signature_hash = given.signature_hash, doc = given.doc, last_seen_at = clock_timestamp()
    FROM stale JOIN given ON given.name = stale.name
    WHERE script.name = stale.name
)
INSERT INTO cronoq_script (name, signature, signature_hash, doc, first_seen_at, last_seen_at)
SELECT name, signature, signature_hash, doc, clock_timestamp(), clock_timestamp()
FROM given
WHERE NOT EXISTS (SELECT FROM cronoq_script AS script WHERE script.name = given.name)
ORDER BY name
ON CONFLICT DO NOTHING
