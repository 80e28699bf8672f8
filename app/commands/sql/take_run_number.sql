-- The next run number of a team.
--   $1 text  team
-- The row stays locked to the end of the transaction that writes the run, so numbers have no gaps: a run that is not
-- written takes none.
update seatrial.team set last_run_number = last_run_number + 1
where id = $1
returning last_run_number
