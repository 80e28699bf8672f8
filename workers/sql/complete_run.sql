-- Take one run whose evaluations have all ended, mark it ended, and say how its trials ended. The caller appends
-- run.completed in the same transaction. A run that another foreman works on is skipped.
with ready as (
    select id from foreman.run
    where not ended and completed = expanded and (expanded = evaluations or cancelling)
    order by id limit 1 for update skip locked
), done as (
    update foreman.run as r set ended = true from ready where r.id = ready.id
    returning r.id, r.team, r.evaluations, r.trials, r.expanded
), counted as (
    select t.outcome, t.fault, count(*) as trials
    from done join foreman.trial as t on t.run_id = done.id
    group by t.outcome, t.fault
)
select d.*,
       coalesce((select sum(trials) from counted where outcome = 'scored'), 0)::integer as scored,
       coalesce((select sum(trials) from counted where outcome = 'cancelled'), 0)::integer as cancelled,
       coalesce((select jsonb_object_agg(fault, trials) from counted where outcome = 'errored'), '{}')::text as errored
from done as d
