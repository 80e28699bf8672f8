-- The member list of a run, under its digest.
--   $1 bytea  digest    $2 bytea  members
-- Equal lists are one row: of two writers the second waits for the first and does nothing.
insert into seatrial.roster (digest, members) values ($1, $2)
on conflict (digest) do nothing
