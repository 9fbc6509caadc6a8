-- A leader that steps down in order says why its term ended, and tells the standbys.
WITH closed AS (
    UPDATE cronoq_leader_term SET until_at = clock_timestamp(), ended = %(ended)s WHERE term = %(term)s
)
SELECT pg_notify(cronoq_channel(current_schema(), 'leader'), 'resigned')
