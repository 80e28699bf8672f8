-- The names of a team's newest agents, to find the one that was meant by a name that there is not.
--   $1 text  team    $2 integer  at most so many
select name from seatrial.agent where team = $1 order by id desc limit $2
