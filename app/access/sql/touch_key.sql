-- Note that a key was used, to the minute.
--   $1 text         key id
--   $2 timestamptz  now
-- Never goes back and never waits: of concurrent requests the first writes, and a row locked by another is left alone.
update seatrial.api_key
set last_used_at = $2
where id = (
    select id from seatrial.api_key
    where id = $1 and (last_used_at is null or last_used_at <= $2::timestamptz - interval '1 minute')
    for no key update skip locked
)
