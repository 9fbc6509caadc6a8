-- Who leads, for a leader that doesn't any more.
SELECT epoch, host, term FROM cronoq_leader
