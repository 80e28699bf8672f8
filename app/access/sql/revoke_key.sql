-- Revoke a key of a team, for good.
--   $1 text  team id    $2 text  key id    $3 timestamptz  now
-- No row: there is no such key in this team, or it is revoked already. The row lock lets one of two callers win.
update seatrial.api_key
set revoked_at = $3
where team = $1 and id = $2 and revoked_at is null
returning id
