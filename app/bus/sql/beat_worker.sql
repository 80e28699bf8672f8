-- A heartbeat: one row is moved, and the answer says what the process still owns and what it shall stop.
-- $1 text: the worker's id
-- Returns at least one row; work_id is null in the only row of a worker that owns nothing.
-- Concurrency: the beat moves in a row of this process alone, so heartbeats cannot deadlock with appends, which write the
-- work rows. What is owned is of the statement's snapshot: a lease lost in this instant is refused by its epoch.
with moved as (
    update eventlog.worker set beat = beat + 1, beat_at = now() where id = $1 returning id
)
select exists (select from moved) as known, w.id as work_id, w.lease_epoch as epoch, coalesce(w.cancel, false) as cancel
from (values (1)) as always
left join eventlog.work as w on w.owner = $1
