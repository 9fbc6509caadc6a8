-- Make rows for the pools that code and jobs name. Locks: nothing but new rows.
-- Looks first: ON CONFLICT alone waits for whoever edits the existing one.
INSERT INTO cronoq_pool (name)
SELECT DISTINCT name
FROM (SELECT unnest(%(names)s::text[]) AS name UNION SELECT pool FROM cronoq_job) AS named
WHERE NOT EXISTS (SELECT FROM cronoq_pool WHERE cronoq_pool.name = named.name)
ORDER BY name
ON CONFLICT DO NOTHING
