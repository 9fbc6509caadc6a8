-- Give the leader's lock back.
SELECT pg_advisory_unlock_all()
