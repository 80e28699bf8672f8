-- Every lease there is, with the beat of its owner; null: the owner has retired or was never known.
-- Concurrency: one snapshot. The sweeper compares beats of different times by its own clock. Index work_owner.
select w.id as work_id, w.kind, w.team, w.owner, w.lease_epoch as epoch, k.beat
from eventlog.work as w
left join eventlog.worker as k on k.id = w.owner
where w.owner is not null
