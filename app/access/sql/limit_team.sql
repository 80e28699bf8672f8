-- How many trials a team runs at a time, from the next admission on. Nothing when the limit is that already, so of two
-- equal requests the second, which waits for the first, writes no event.
--   $1 text  team id    $2 integer  the limit; null: none
update seatrial.team set trial_limit = $2
where id = $1 and trial_limit is distinct from $2
returning id
