-- Positions of the events of one stream, in its order.
-- $1 text: team
-- $2 bigint: after this position
-- $3 integer: at most so many
-- $4 text[]: of these types; null: of all
-- $5 text: the stream
-- $6 bigint: up to this position
-- Concurrency: within a stream, positions become visible in order (its row is locked from version to commit).
select e.position
from eventlog.event as e
where e.stream = $5 and e.team = $1 and e.position > $2 and e.position <= $6
  and ($4::text[] is null or e.type = any ($4))
order by e.version
limit $3
