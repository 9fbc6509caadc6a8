-- Write down the new term, and close those that could not say themselves why they ended. This process may know of its own.
WITH closed AS (
    UPDATE cronoq_leader_term
    SET until_at = clock_timestamp(), ended = CASE WHEN term = %(last)s::uuid THEN %(last_ended)s ELSE %(ended)s END
    WHERE until_at IS NULL AND term <> %(term)s
)
INSERT INTO cronoq_leader_term (term, epoch, coordinator, host, from_at, recovered)
VALUES (%(term)s, %(epoch)s, %(coordinator)s, %(host)s, clock_timestamp(), %(recovered)s::json)
