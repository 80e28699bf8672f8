-- The events of several streams, stream by stream, oldest first.
-- $1 text[]: streams
-- Concurrency: each stream as far as it is now; who decides by it names the version that it saw, or knows that it has ended.
select e.position, e.stream, s.category, e.version, e.event_id, e.type, e.schema_version, e.team, e.recorded_at,
       e.data, e.meta, e.hash
from eventlog.event as e
join eventlog.stream as s on s.id = e.stream
where e.stream = any ($1::text[])
order by e.stream, e.version
