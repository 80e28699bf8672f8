-- A stored agent by its id or its name. No name looks like an id, so there is one at most.
-- $1 text: team
-- $2 text: its id or its name
select id, name, convert_from(definition, 'UTF8') as agent, 'sha256:' || encode(digest, 'hex') as agent_digest,
       created_by, created_at
from seatrial.agent as stored
where team = $1 and (id = $2 or name = $2)
