-- Stored agents of a team, newest first.
-- $1 text: team
-- $2 text: made before this id; null: from the newest
-- $3 integer: at most so many
select id, name, convert_from(definition, 'UTF8') as agent, 'sha256:' || encode(digest, 'hex') as agent_digest,
       created_by, created_at
from seatrial.agent as stored
where team = $1 and ($2::text is null or id < $2)
order by id desc
limit $3
