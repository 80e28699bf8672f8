-- A stored agent of a team by its id or its name. No name looks like an id, so there is one at most.
--   $1 text  team    $2 text  id or name
-- Rows are written once and never removed, so a snapshot stays true.
select id, name, definition, digest
from seatrial.agent
where team = $1 and (id = $2 or name = $2)
