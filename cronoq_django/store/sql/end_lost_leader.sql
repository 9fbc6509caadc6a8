-- End the session of a leader without a heartbeat, the one that is recorded and no other that has its number by now.
-- After a fifth more than the TTL: by then it does not trust itself any more. (An assumed role does not see when another
-- session began; then the server's own timeouts have to do.)
SELECT pid, leader.host, pg_terminate_backend(pid)
FROM cronoq_leader AS leader JOIN pg_stat_activity AS activity
  ON pid = leader.backend_pid AND activity.backend_start = leader.backend_start
WHERE leader.renewed_at < clock_timestamp() - leader.ttl * 1.2
