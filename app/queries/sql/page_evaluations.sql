-- Evaluations of a team with score and state of their evidence, newest first.
-- $1 text: team
-- $2 bigint: made before this position
-- $3 integer: at most so many
-- $4 text: of this run; null here (page_evaluations_of_run is the other)
-- $5 text: of this task; null: of any
-- $6 text: with this status; null: any
-- $7 text: with this outcome; null: any
-- $8 text: with an agent of this name; null: any
-- $9 timestamptz: made after; null: ever
-- $10 timestamptz: made before; null: ever
select e.*, n.name as task_name, row_to_json(s) as score, p.status as evidence, p.archive_digest
from views.evaluation as e
left join seatrial.task as n on n.id = e.task_id
left join views.score as s on s.id = e.id
left join views.provenance as p on p.evaluation_id = e.id
where e.team = $1
  and e.position < $2
  and $4::text is null
  and ($5::text is null or e.task_id = $5)
  and ($6::text is null or e.status = $6)
  and ($7::text is null or e.outcome = $7)
  and ($8::text is null or e.agent_name = $8)
  and ($9::timestamptz is null or e.created_at > $9)
  and ($10::timestamptz is null or e.created_at < $10)
order by e.position desc
limit $3
