-- A new agent, unless the team has one of this name.
--   $1 text  agent id    $2 text  team    $3 text  name    $4 bytea  definition    $5 bytea  digest    $6 text  actor
-- Of two writers of one name the second waits for the first to commit, and then gets no row.
insert into seatrial.agent (id, team, name, definition, digest, created_by) values ($1, $2, $3, $4, $5, $6)
on conflict do nothing
returning id
