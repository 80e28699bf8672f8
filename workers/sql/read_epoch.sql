-- The lease epoch of the work $1.
select lease_epoch from eventlog.work where id = $1
