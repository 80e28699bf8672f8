-- How far a view is, and hold it there until the end of the transaction.
-- $1 text: name of its checkpoint
-- Concurrency: the projector's move_checkpoints waits for this lock, and this waits for its batch. Whoever holds it may
-- change the view's tables.
select c.position from eventlog.checkpoint as c where c.name = $1 for update
