-- The run of a team with a number, with its score.
-- $1 text: team
-- $2 bigint: number
select r.*, row_to_json(s) as score,
       case when a.id is not null then json_build_object('id', a.id, 'name', a.name) end as stored_agent
from views.run as r
left join views.score as s on s.id = r.id
left join seatrial.agent as a on a.id = r.agent_id
where r.team = $1 and r.number = $2
