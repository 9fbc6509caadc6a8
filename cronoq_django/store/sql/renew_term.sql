-- The leader's heartbeat.
UPDATE cronoq_leader SET renewed_at = clock_timestamp() WHERE epoch = %(epoch)s AND term = %(term)s
