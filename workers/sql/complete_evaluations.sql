-- Take at most $1 evaluations whose trials have all ended, mark them completed, and say how their trials ended. The caller
-- appends evaluation.completed in the same transaction. Rows that another foreman works on are skipped.
with ready as (
    select id from foreman.evaluation where open_trials = 0 and not completed
    order by id limit $1 for update skip locked
), done as (
    update foreman.evaluation as e set completed = true from ready where e.id = ready.id
    returning e.id, e.run_id, e.trials
), counted as (
    update foreman.run as r set completed = r.completed + c.completed
    from (select run_id, count(*) as completed from done group by run_id) as c
    where r.id = c.run_id
    returning r.id, r.team
), faults as (
    select t.evaluation_id, t.fault, count(*) as trials
    from done join foreman.trial as t on t.evaluation_id = done.id
    where t.outcome = 'errored'
    group by t.evaluation_id, t.fault
)
select d.id, d.run_id, r.team, d.trials, now() as now,
       (select count(*) from foreman.trial as t where t.evaluation_id = d.id and t.outcome = 'scored') as scored,
       (select count(*) from foreman.trial as t where t.evaluation_id = d.id and t.outcome = 'cancelled') as cancelled,
       coalesce((select jsonb_object_agg(f.fault, f.trials) from faults as f where f.evaluation_id = d.id), '{}')::text
           as errored
from done as d join counted as r on r.id = d.run_id
