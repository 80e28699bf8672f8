-- How many events of each of some types a run or a revision, and all that belongs to it, have up to a position.
-- $1 text: team
-- $2 text: id of the run or the revision
-- $3 text[]: the types
-- $4 bigint: up to this position
-- Concurrency: reads what the timeline has in the caller's snapshot; whoever asks knows how far that is.
select t.type, count(*)::bigint as events
from views.timeline as t
where t.team = $1 and t.correlation = $2 and t.position <= $4 and t.type = any ($3)
group by t.type
