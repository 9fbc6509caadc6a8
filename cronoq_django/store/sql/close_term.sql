-- A leader that steps down in order says why its term ended.
UPDATE cronoq_leader_term SET until_at = clock_timestamp(), ended = %(ended)s WHERE term = %(term)s
