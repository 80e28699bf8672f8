-- A view goes on: it has passed the event that halted it.
-- $1 text: view
-- $2 bigint: where it is now
-- Concurrency: only after lock_checkpoints, in the same transaction.
delete from views.halted where view = $1 and position <= $2
