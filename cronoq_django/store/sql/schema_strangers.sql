-- What a schema holds that is neither ours nor the record of our migrations.
SELECT name
FROM (
    SELECT relname AS name FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s) AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION
    SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(%(schema)s)
) AS held
WHERE name NOT LIKE 'cronoq\_%%' AND name NOT LIKE 'django\_migrations%%'
ORDER BY name
