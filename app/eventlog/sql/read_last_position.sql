-- The greatest position that is visible now; 0 in an empty log.
select coalesce(max(position), 0) from eventlog.event
