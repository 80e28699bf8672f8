-- Which of some work rows may be claimed now.
-- $1 text: the kind
-- $2 text[]: their ids
-- Concurrency: as read_due. By primary key.
select id as work_id, team, lease_epoch as epoch, cancel
from eventlog.work
where id = any ($2) and kind = $1 and owner is null and due_at <= now()
order by priority desc, seq
