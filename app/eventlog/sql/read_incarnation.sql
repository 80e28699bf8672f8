-- Which life of the log this is.
select incarnation from eventlog.log
