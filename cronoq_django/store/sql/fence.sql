-- The fence: the first statement of every transaction of a leader. No row: another leader took over.
-- Locks: the leader row, FOR SHARE: a successor's bump waits for this transaction, and this one for the bump.
-- (FOR KEY SHARE does not block the bump, and an EXISTS inside the INSERT reads a snapshot from before it.)
SELECT clock_timestamp() FROM cronoq_leader WHERE epoch = %(epoch)s AND term = %(term)s FOR SHARE
