-- A team by its id or its name; an id wins over a team that is named like it.
--   $1 text  id or name
select id, name, last_run_number, trial_limit, created_at
from seatrial.team
where id = $1 or name = $1
order by (id = $1) desc
limit 1
