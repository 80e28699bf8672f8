-- A page of a team's keys, oldest first, without hashes.
--   $1 text  team id    $2 text  after this key id ('' from the start)    $3 int  at most
-- Ids only grow with time, so a key made between two pages is on a later one.
select id, team, name, role, operator, created_at, expires_at, revoked_at, last_used_at
from seatrial.api_key
where team = $1 and id > $2
order by id
limit $3
