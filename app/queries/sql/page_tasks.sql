-- Tasks of a team, newest first.
-- $1 text: team
-- $2 bigint: made before this position
-- $3 integer: at most so many
select t.*, n.name
from views.task as t
left join seatrial.task as n on n.id = t.id
where t.team = $1 and t.position < $2
order by t.position desc
limit $3
