-- Revisions of a team, newest first.
-- $1 text: team
-- $2 bigint: uploaded before this position
-- $3 integer: at most so many
-- $4 text: of this task; null: of any
-- $5 text: with this status; null: any
-- $6 timestamptz: uploaded after; null: ever
-- $7 timestamptz: uploaded before; null: ever
select r.*, n.name as task_name
from views.revision as r
left join seatrial.task as n on n.id = r.task_id
where r.team = $1
  and r.position < $2
  and ($4::text is null or r.task_id = $4)
  and ($5::text is null or r.status = $5)
  and ($6::timestamptz is null or r.uploaded_at > $6)
  and ($7::timestamptz is null or r.uploaded_at < $7)
order by r.position desc
limit $3
