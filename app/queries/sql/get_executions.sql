-- The executions of a trial, first to latest.
-- $1 text: team
-- $2 text: trial
select x.* from views.execution as x where x.trial_id = $2 and x.team = $1 order by x.number
