-- What a term has recovered by now.
UPDATE cronoq_leader_term SET recovered = %(recovered)s::json WHERE term = %(term)s
