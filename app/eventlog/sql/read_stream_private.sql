-- The events of one stream with their private parts, oldest first. Not for the projector: its role may not.
-- $1 text: stream
-- $2 integer: only versions after this one
-- Concurrency: versions of one stream become visible in order, because its lock is held to the end of each commit.
select e.position, e.stream, s.category, e.version, e.event_id, e.type, e.schema_version, e.team, e.recorded_at,
       e.data, e.meta, e.hash, e.private
from eventlog.event as e
join eventlog.stream as s on s.id = e.stream
where e.stream = $1 and e.version > $2
order by e.version
