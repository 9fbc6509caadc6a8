-- Give the leader's lock back, and tell the standbys, who hear of it when it is free.
SELECT pg_advisory_unlock_all(),
       CASE WHEN %(tell)s THEN pg_notify(cronoq_channel(current_schema(), 'leader'), 'resigned') END
