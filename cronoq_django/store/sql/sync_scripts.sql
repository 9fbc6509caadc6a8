-- Record the scripts that this process knows. Locks: their rows, in name order (the input is sorted); equal ones are
-- touched once an hour only, for last_seen_at.
INSERT INTO cronoq_script AS script (name, signature, signature_hash, doc, first_seen_at, last_seen_at)
SELECT name, signature, signature_hash, doc, clock_timestamp(), clock_timestamp()
FROM unnest(%(name)s::text[], %(signature)s::text[], %(signature_hash)s::text[], %(doc)s::text[])
     AS given (name, signature, signature_hash, doc)
ON CONFLICT (name) DO UPDATE
SET signature = excluded.signature, signature_hash = excluded.signature_hash, doc = excluded.doc, last_seen_at = excluded.last_seen_at
WHERE (script.signature_hash, script.doc) IS DISTINCT FROM (excluded.signature_hash, excluded.doc)
   OR script.last_seen_at < clock_timestamp() - interval '1 hour'
