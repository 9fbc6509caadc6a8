-- Try for the leader's lock; never wait for it: a waiting statement would pin the xmin horizon of the whole server.
-- The key is derived from the schema in which cronoq_leader is found, so that each cluster has a lock of its own.
SELECT pg_try_advisory_lock(
    ('x' || substr(key, 1, 8))::bit(32)::int, ('x' || substr(key, 9, 8))::bit(32)::int)
FROM (
    SELECT encode(sha256(convert_to('cronoq:' || nspname, 'UTF8')), 'hex') AS key
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = 'cronoq_leader'::regclass
) AS cluster
