-- The schemas that hold a cluster.
SELECT nspname
FROM pg_namespace
WHERE EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid AND relname = 'cronoq_leader' AND relkind = 'r')
ORDER BY nspname
