-- Record what was made for the run $1: $2 evaluation ids, $3 trials of each, $4 trial ids, $5 the evaluation of each trial.
-- The caller holds the run's row and appends the events in the same transaction.
with evaluation_made as (
    insert into foreman.evaluation (id, run_id, trials, open_trials)
    select id, $1, $3, $3 from unnest($2::text[]) as id
), trial_made as (
    insert into foreman.trial (id, evaluation_id, run_id)
    select id, evaluation_id, $1 from unnest($4::text[], $5::text[]) as t (id, evaluation_id)
)
update foreman.run
set expanded = expanded + cardinality($2::text[]), open_trials = open_trials + cardinality($4::text[])
where id = $1
