-- The run with the fewest open trials (fewer than $1) that has evaluations still to be made; locked until the caller has
-- made them. A run that another foreman expands is skipped.
select id, team, expanded from foreman.run
where not ended and not cancelling and expanded < evaluations and open_trials < $1
order by open_trials, id limit 1 for update skip locked
