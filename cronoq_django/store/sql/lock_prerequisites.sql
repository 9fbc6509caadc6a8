-- Which of these runs exist; until the transaction ends they can't be deleted, and do anything else.
-- Locks: FOR KEY SHARE, which no worker, leader or cancel waits for: how long the caller takes is nobody's trouble.
SELECT id FROM cronoq_run WHERE id = ANY (%(ids)s::uuid[]) ORDER BY id FOR KEY SHARE
