-- The trials that fit into free slots now, at most $1, in the order in which they are served: by priority, then first come
-- first served. $2 is the number of seconds after which a dispatcher that does not beat offers no slots. Right under
-- concurrency because the caller holds the row of scheduler.lock: nobody else admits between this count and the admissions.
-- A slot is in use while its trial's work row is due or owned. Each team offers the head of its own queue, no longer than
-- what its limit leaves (a null limit is none), and those heads are merged: however many trials a team has waiting at its
-- limit, the others are found. Reads as many rows of the queue as teams wait, times $1 at most, all by index.
with recursive capacity as (
    select coalesce(sum(slots), 0) as slots
    from eventlog.worker
    where kind = 'trial' and beat_at > now() - make_interval(secs => $2)
), used as (
    select team, count(*) as slots
    from eventlog.work
    where kind = 'trial' and (owner is not null or due_at is not null)
    group by team
), free as (
    select greatest(0, least($1, (select slots from capacity) - (select coalesce(sum(slots), 0) from used))) as slots
), waiting as (                                          -- the teams in the queue, each found by one step in the index
    (select team from scheduler.queued order by team limit 1)
    union all
    select (select q.team from scheduler.queued as q where q.team > w.team order by q.team limit 1)
    from waiting as w
    where w.team is not null
), head as (
    select w.team, case when t.trial_limit is null then (select slots from free)
                        else least((select slots from free), greatest(0, t.trial_limit - coalesce(u.slots, 0)))
                   end as fit
    from waiting as w
    left join used as u on u.team = w.team
    left join seatrial.team as t on t.id = w.team
    where w.team is not null
)
select q.trial_id, q.team, q.run_id, q.event_id, q.priority, now() as now
from head as h
cross join lateral (
    select * from scheduler.queued where team = h.team order by priority desc, position limit h.fit
) as q
order by q.priority desc, q.position
limit (select slots from free)
