-- The fence: the first statement of every transaction of a leader. No row: another leader took over, or the transaction
-- is not on the backend that holds the lock.
-- Locks: the leader row, FOR SHARE: a successor's bump waits for this transaction, and this one for the bump.
-- (FOR KEY SHARE does not block the bump, and an EXISTS inside the INSERT reads a snapshot from before it.)
SELECT clock_timestamp() FROM cronoq_leader
WHERE epoch = %(epoch)s AND term = %(term)s AND backend_pid = pg_backend_pid()
FOR SHARE
