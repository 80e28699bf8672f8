-- The evaluation with an id, or two of those with ids in a range.
-- $1 text: team
-- $2 text: first id
-- $3 text: last id
select e.*, n.name as task_name, row_to_json(s) as score, p.status as evidence, p.archive_digest
from views.evaluation as e
left join seatrial.task as n on n.id = e.task_id
left join views.score as s on s.id = e.id
left join views.provenance as p on p.evaluation_id = e.id
where e.id >= $2 and e.id <= $3 and e.team = $1
order by e.id
limit 2
