-- Work that anybody may claim, by priority, then first come, first served.
-- $1 text: the kind
-- $2 integer: at most so many
-- Concurrency: a plain read, so two workers may see the same row. The claim is a unit guarded by the epoch: one of them
-- gets it, the other one stale_lease. Index work_due.
select id as work_id, team, lease_epoch as epoch, cancel
from eventlog.work
where kind = $1 and owner is null and due_at <= now()
order by priority desc, seq
limit $2
