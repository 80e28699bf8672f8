-- Put trials into the queue: $1 trial ids, $2 teams, $3 run ids, $4 ids of their trial.queued, $5 priorities,
-- $6 positions. One that is there already is left (the same event, folded again after a crash).
insert into scheduler.queued (trial_id, team, run_id, event_id, priority, position)
select * from unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::smallint[], $6::bigint[])
on conflict (trial_id) do nothing
