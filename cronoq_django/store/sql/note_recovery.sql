-- What a term has recovered by now. Locks: its row, unless somebody else holds it.
WITH free AS MATERIALIZED (
    SELECT term FROM cronoq_leader_term WHERE term = %(term)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE cronoq_leader_term AS term SET recovered = %(recovered)s::json FROM free WHERE term.term = free.term
