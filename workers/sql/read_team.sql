-- The team of the work $1.
select team from eventlog.work where id = $1
