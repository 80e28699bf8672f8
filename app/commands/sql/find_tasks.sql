-- The tasks of a team among these ids and names; an id wins over a task that is named like it.
--   $1 text  team    $2 text[]  ids or names
-- One row for each reference that is found. Tasks are never renamed or removed, so a snapshot stays true.
select distinct on (wanted.reference) wanted.reference, t.id, t.name
from unnest($2::text[]) as wanted (reference)
join seatrial.task as t on t.team = $1 and (t.id = wanted.reference or t.name = wanted.reference)
order by wanted.reference, (t.id = wanted.reference) desc
