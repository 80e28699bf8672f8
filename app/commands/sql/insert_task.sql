-- A new task, unless the team has one of this name.
--   $1 text  task id    $2 text  team    $3 text  name
-- Of two writers of one name the second waits for the first to commit, and then gets no row.
insert into seatrial.task (id, team, name) values ($1, $2, $3)
on conflict do nothing
returning id
