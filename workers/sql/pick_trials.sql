-- The trials that fit into free slots now, at most $1, in the order in which they are served; $2 is the number of seconds
-- after which a dispatcher that does not beat offers no slots. Right under concurrency because the caller holds the row of
-- scheduler.lock: nobody else admits between this count and the admissions. A slot is in use while its trial's work row is
-- due or owned. Team limits count the team's own slots; a null limit is none.
with capacity as (
    select coalesce(sum(slots), 0) as slots
    from eventlog.worker
    where kind = 'trial' and beat_at > now() - make_interval(secs => $2)
), used as (
    select team, count(*) as slots
    from eventlog.work
    where kind = 'trial' and (owner is not null or due_at is not null)
    group by team
), waiting as (
    select q.*, row_number() over (partition by q.team order by q.priority desc, q.position) as turn
    from (select * from scheduler.queued order by priority desc, position limit 1000) as q
)
select w.trial_id, w.team, w.run_id, w.event_id, w.priority, now() as now
from waiting as w
left join used as u on u.team = w.team
left join seatrial.team as t on t.id = w.team
where t.trial_limit is null or coalesce(u.slots, 0) + w.turn <= t.trial_limit
order by w.priority desc, w.position
limit greatest(0, least($1, (select slots from capacity) - (select coalesce(sum(slots), 0) from used)))
