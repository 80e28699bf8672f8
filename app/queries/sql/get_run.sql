-- The run with an id, or two of those with ids in a range, with their scores.
-- $1 text: team
-- $2 text: first id
-- $3 text: last id
select r.*, row_to_json(s) as score,
       case when a.id is not null then json_build_object('id', a.id, 'name', a.name) end as stored_agent
from views.run as r
left join views.score as s on s.id = r.id
left join seatrial.agent as a on a.id = r.agent_id
where r.id >= $2 and r.id <= $3 and r.team = $1
order by r.id
limit 2
