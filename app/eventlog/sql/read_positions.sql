-- Events by position, lowest first; positions without an event are left out.
-- $1 bigint[]: positions
select e.position, e.stream, s.category, e.version, e.event_id, e.type, e.schema_version, e.team, e.recorded_at,
       e.data, e.meta, e.hash
from eventlog.event as e
join eventlog.stream as s on s.id = e.stream
where e.position = any ($1)
order by e.position
