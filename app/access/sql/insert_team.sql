-- A new team, unless its name (or id) is taken.
--   $1 text  team id    $2 text  name
-- Of two writers of one name the second waits for the first and then does nothing.
insert into seatrial.team (id, name) values ($1, $2)
on conflict do nothing
returning id
