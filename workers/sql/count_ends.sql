-- Count how trials ended: $1 trial ids, $2 outcomes (scored, errored, cancelled), $3 fault owners (of errored, else null).
-- A trial that was counted before is left out, so folding an event twice changes nothing.
with ended as (
    update foreman.trial as t
    set outcome = e.outcome, fault = e.fault
    from unnest($1::text[], $2::text[], $3::text[]) as e (id, outcome, fault)
    where t.id = e.id and t.outcome is null
    returning t.evaluation_id, t.run_id
), evaluation_counted as (
    update foreman.evaluation as v
    set open_trials = v.open_trials - c.ended
    from (select evaluation_id, count(*) as ended from ended group by evaluation_id) as c
    where v.id = c.evaluation_id
)
update foreman.run as r
set open_trials = r.open_trials - c.ended
from (select run_id, count(*) as ended from ended group by run_id) as c
where r.id = c.run_id
