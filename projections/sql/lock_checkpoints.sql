-- How far views are, and hold them there until the end of the transaction.
-- $1 text[]: names of their checkpoints
-- Concurrency: the projector's move_checkpoints waits for these locks, and this waits for its batch; both take them in the
-- order of the names. Whoever holds one may change the view's tables.
select c.name, c.position from eventlog.checkpoint as c where c.name = any ($1) order by c.name for update
