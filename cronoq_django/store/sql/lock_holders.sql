-- The sessions that hold a cluster's advisory lock: its leader's, if there is one.
SELECT pid
FROM pg_locks,
     (SELECT encode(sha256(convert_to('cronoq:' || %(schema)s, 'UTF8')), 'hex') AS key) AS cluster
WHERE locktype = 'advisory' AND granted AND objsubid = 2
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND classid::bigint = ('x' || substr(key, 1, 8))::bit(32)::bigint
  AND objid::bigint = ('x' || substr(key, 9, 8))::bit(32)::bigint
