-- Streams that say they have events, and have none.
select s.id, s.version from eventlog.stream as s
where not exists (select from eventlog.event as e where e.stream = s.id)
order by s.id
