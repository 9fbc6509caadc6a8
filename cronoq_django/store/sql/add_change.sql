-- Put a job into the outbox: `plan` is to look at it (again).
INSERT INTO cronoq_job_change (job, at) VALUES (%(job)s, clock_timestamp())
