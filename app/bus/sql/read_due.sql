-- Work that anybody may claim, by priority, then first come, first served.
-- $1 text: the kind
-- $2 integer: at most so many
-- A clock that was set back: work is due at once or after a pause of a minute at most (policy.backoff), so what is due
-- later than that was written before, and is due.
-- Concurrency: a plain read, so two workers may see the same row. The claim is a unit guarded by the epoch: one of them
-- gets it, the other one stale_lease. Index work_due.
select id as work_id, team, lease_epoch as epoch, cancel
from eventlog.work
where kind = $1 and owner is null and due_at is not null
  and (due_at <= now() or due_at > now() + interval '2 minutes')
order by priority desc, seq
limit $2
