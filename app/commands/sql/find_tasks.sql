-- The tasks of a team among these ids and names; an id wins over a task that is named like it.
--   $1 text  team    $2 text[]  ids or names
-- One row for each reference that is found. Tasks are never renamed or removed, so a snapshot stays true. Two joins, each
-- with its index: a run may name ten thousand tasks.
select distinct on (reference) reference, id, name
from (select wanted.reference, t.id, t.name, 1 as rank
      from unnest($2::text[]) as wanted (reference)
      join seatrial.task as t on t.id = wanted.reference and t.team = $1
      union all
      select wanted.reference, t.id, t.name, 2
      from unnest($2::text[]) as wanted (reference)
      join seatrial.task as t on t.team = $1 and t.name = wanted.reference) as found
order by reference, rank
