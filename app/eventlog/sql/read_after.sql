-- Events after a position, lowest first.
-- $1 bigint: after this position
-- $2 bigint: up to this position
-- $3 integer: at most so many
-- Concurrency: beyond the high water positions become visible out of order. Whoever reads there must be a tail.
select e.position, e.stream, s.category, e.version, e.event_id, e.type, e.schema_version, e.team, e.recorded_at,
       e.data, e.meta, e.hash
from eventlog.event as e
join eventlog.stream as s on s.id = e.stream
where e.position > $1 and e.position <= $2
order by e.position
limit $3
