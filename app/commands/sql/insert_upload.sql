-- Open an upload.
--   $1 text  upload id    $2 text  team    $3 text  actor    $4 timestamptz  expires_at
-- The id is new: no conflict, and sent again after a lost connection it does nothing.
insert into seatrial.upload (id, team, created_by, expires_at)
values ($1, $2, $3, $4)
on conflict (id) do nothing
