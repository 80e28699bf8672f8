-- Trials in the order in which they were queued, which within a run is that of its evaluations.
-- $1 text: team
-- $2 bigint: queued after this position
-- $3 integer: at most so many
-- $4 text: of this run; null: of any
-- $5 text: of this evaluation; null: of any
-- $6 text: with this status; null: any
-- $7 text: whose latest execution failed with this code; null: any
-- Each status says whether the trial has ended: told to the planner, which folds the parameters in, so that it finds the
-- index of the open ones or that of the ended ones.
select t.*
from views.trial as t
where t.team = $1
  and t.position > $2
  and ($4::text is null or t.run_id = $4)
  and ($5::text is null or t.evaluation_id = $5)
  and ($6::text is null or t.status = $6)
  and ($6::text is null or $6 in ('scored', 'errored', 'cancelled') or t.ended_at is null)
  and ($6::text is null or $6 not in ('scored', 'errored', 'cancelled') or t.ended_at is not null)
  and ($7::text is null or t.failure_code = $7)
order by t.position
limit $3
