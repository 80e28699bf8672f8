-- Positions of the events of a team, in the order of the log.
-- $1 text: team
-- $2 bigint: after this position
-- $3 integer: at most so many
-- $4 text[]: of these types; null: of all
select t.position
from views.timeline as t
where t.team = $1 and t.position > $2 and ($4::text[] is null or t.type = any ($4))
order by t.position
limit $3
