-- An upload of a team.
--   $1 text  team    $2 text  upload id
-- A snapshot: whoever changes the row says in its own statement which state it expects.
select id, team, expires_at, object_key, sha256, size_bytes, state, revision
from seatrial.upload
where team = $1 and id = $2
