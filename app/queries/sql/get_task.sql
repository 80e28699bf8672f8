-- A task by id or name.
-- $1 text: team
-- $2 text: its id or its name
select t.*, n.name
from views.task as t
left join seatrial.task as n on n.id = t.id
where t.team = $1
  and t.id in ($2, (select named.id from seatrial.task as named where named.team = $1 and named.name = $2))
