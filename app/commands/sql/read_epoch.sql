-- The lease epoch of a work row.
--   $1 text  work id
-- A snapshot: a claim in between moves the epoch, and the log then refuses the unit that was guarded by the old one.
select lease_epoch from eventlog.work where id = $1
