-- The last event that is visible; 0 in an empty log. For people: what lies before it may not be decided yet.
select coalesce(max(position), 0) from eventlog.event
