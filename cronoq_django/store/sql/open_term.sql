-- Write down the new term, and close those that could not say themselves why they ended. This process may know of its own.
-- Locks: the old terms' rows, skipping those that somebody holds: a row looked at in a console kept everybody from leading.
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), open AS MATERIALIZED (
    SELECT term FROM cronoq_leader_term WHERE until_at IS NULL AND term <> %(term)s FOR NO KEY UPDATE SKIP LOCKED
), closed AS (
    UPDATE cronoq_leader_term AS old
    SET until_at = moment.now, ended = CASE WHEN old.term = %(last)s::uuid THEN %(last_ended)s ELSE %(ended)s END
    FROM open, moment WHERE old.term = open.term
)
INSERT INTO cronoq_leader_term (term, epoch, coordinator, host, from_at, recovered)
SELECT %(term)s, %(epoch)s, %(coordinator)s, %(host)s, now, %(recovered)s::json FROM moment
