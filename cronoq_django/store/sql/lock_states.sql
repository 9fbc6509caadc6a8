-- Lock the states of jobs that are to be planned again; those that somebody else holds are left out, and come later.
SELECT job_id FROM cronoq_job_state WHERE job_id = ANY (%(ids)s::uuid[]) ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED
