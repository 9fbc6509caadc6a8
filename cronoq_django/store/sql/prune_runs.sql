-- Remove runs that ended long ago, with their attempts, details and dependencies.
-- Locks: the rows it removes, in id order. Relies on: cronoq_run_finished (partial index).
-- Stays: what holds a key, and what a run that still waits depends on.
WITH old AS MATERIALIZED (
    SELECT run.id
    FROM cronoq_run AS run
    WHERE run.finished_at < clock_timestamp() - %(kept)s::interval AND run.status = %(status)s AND NOT run.key_held
      AND NOT EXISTS (SELECT FROM cronoq_dependency AS needed
                      WHERE needed.prerequisite_id = run.id AND needed.settled_at IS NULL)
    ORDER BY run.finished_at
    LIMIT %(limit)s
), locked AS MATERIALIZED (
    SELECT id FROM cronoq_run WHERE id IN (SELECT id FROM old) ORDER BY id FOR UPDATE SKIP LOCKED
), attempts AS (
    DELETE FROM cronoq_attempt WHERE run_id IN (SELECT id FROM locked)
), details AS (
    DELETE FROM cronoq_run_detail WHERE run_id IN (SELECT id FROM locked)
), dependencies AS (
    DELETE FROM cronoq_dependency WHERE run_id IN (SELECT id FROM locked) OR prerequisite_id IN (SELECT id FROM locked)
)
DELETE FROM cronoq_run WHERE id IN (SELECT id FROM locked)
