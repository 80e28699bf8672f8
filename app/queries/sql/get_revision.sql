-- The revision with an id, or two of those with ids in a range.
-- $1 text: team
-- $2 text: first id
-- $3 text: last id
select r.*, n.name as task_name
from views.revision as r
left join seatrial.task as n on n.id = r.task_id
where r.id >= $2 and r.id <= $3 and r.team = $1
order by r.id
limit 2
