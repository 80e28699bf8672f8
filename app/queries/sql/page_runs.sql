-- Runs of a team with their scores, newest first.
-- $1 text: team
-- $2 bigint: requested before this position
-- $3 integer: at most so many
-- $4 text: with this status; null: any
-- $5 text: with this outcome; null: any
-- $6 text: with an agent of this name; null: any
-- $7 text: with an evaluation of this task; null: any
-- $8 timestamptz: requested after; null: ever
-- $9 timestamptz: requested before; null: ever
-- $10 text: that named this stored agent; null: any
select r.*, row_to_json(s) as score,
       case when a.id is not null then json_build_object('id', a.id, 'name', a.name) end as stored_agent
from views.run as r
left join views.score as s on s.id = r.id
left join seatrial.agent as a on a.id = r.agent_id
where r.team = $1
  and r.position < $2
  and ($4::text is null or r.status = $4)
  and ($5::text is null or r.outcome = $5)
  and ($6::text is null or r.agent_name = $6)
  and ($7::text is null or exists (select from views.evaluation as e where e.run_id = r.id and e.task_id = $7))
  and ($8::timestamptz is null or r.created_at > $8)
  and ($9::timestamptz is null or r.created_at < $9)
  and ($10::text is null or r.agent_id = $10)
order by r.position desc
limit $3
