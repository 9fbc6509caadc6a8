-- Remove runs that this transaction has locked, with their attempts and details; a trigger removes what they waited for.
-- Whether a run that still waits depends on one is asked again: one that was committed before the lock was not seen by
-- the statement that took it. Relies on: the primary keys, cronoq_dependency_open.
WITH old AS MATERIALIZED (
    SELECT id FROM unnest(%(ids)s::uuid[]) AS given (id)
    WHERE NOT EXISTS (SELECT FROM cronoq_dependency WHERE prerequisite_id = given.id AND settled_at IS NULL)
), attempts AS (
    DELETE FROM cronoq_attempt WHERE run_id = ANY (ARRAY(SELECT id FROM old))
), details AS (
    DELETE FROM cronoq_run_detail WHERE run_id = ANY (ARRAY(SELECT id FROM old))
)
DELETE FROM cronoq_run WHERE id = ANY (ARRAY(SELECT id FROM old))
