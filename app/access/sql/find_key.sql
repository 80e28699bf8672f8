-- One key with its hash, to authenticate.
--   $1 text  key id
-- A snapshot: a key revoked after it was taken still passes this once.
select id, team, name, role, operator, hash, created_at, expires_at, revoked_at, last_used_at
from seatrial.api_key
where id = $1
