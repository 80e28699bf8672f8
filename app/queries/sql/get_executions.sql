-- The executions of a trial, first to latest; of one that adopted its score, those of the trial that ran.
-- $1 text: team
-- $2 text: trial
select x.*
from views.trial as t
join views.execution as x on x.trial_id = coalesce(t.adopted_from, t.id)
where t.id = $2 and t.team = $1
order by x.number
