-- Remove a process that has ended without a word, once it owns nothing.
-- $1 text: its id
-- $2 bigint: the beat it was last seen with
-- Concurrency: a beat in between moves the row, and it stays.
delete from eventlog.worker as k
where k.id = $1 and k.beat = $2 and not exists (select from eventlog.work as w where w.owner = k.id)
returning true
