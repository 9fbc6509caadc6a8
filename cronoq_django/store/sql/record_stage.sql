-- Note a stage's last run. The error of an earlier one stays readable until the stage has gone well again.
INSERT INTO cronoq_stage (name, epoch, last_run_at, duration, rows, error, error_at)
VALUES (%(name)s, %(epoch)s, clock_timestamp(), %(duration)s, %(rows)s, %(error)s, CASE WHEN %(error)s <> '' THEN clock_timestamp() END)
ON CONFLICT (name) DO UPDATE
SET epoch = excluded.epoch, last_run_at = excluded.last_run_at, duration = excluded.duration, rows = excluded.rows,
    error = excluded.error, error_at = excluded.error_at
