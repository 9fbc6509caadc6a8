-- Where the queued runs of one pool begin: each priority that is there, the most urgent first, with the place of its
-- first run. Walks whatever lies before it in the index, dead entries too, so it is not asked with every claim.
-- Relies on: cronoq_run_queued (partial index), one descent for each priority.
WITH RECURSIVE place AS (
    (SELECT priority, due_at, id FROM cronoq_run
     WHERE status = 'queued' AND pool = %(pool)s
     ORDER BY priority DESC, due_at, id LIMIT 1)
    UNION ALL
    SELECT next.priority, next.due_at, next.id
    FROM place CROSS JOIN LATERAL (
        SELECT priority, due_at, id FROM cronoq_run
        WHERE status = 'queued' AND pool = %(pool)s AND priority < place.priority
        ORDER BY priority DESC, due_at, id LIMIT 1
    ) AS next
)
SELECT priority, due_at, id FROM place
