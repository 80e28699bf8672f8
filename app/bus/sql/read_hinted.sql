-- Which of some work rows may be claimed now.
-- $1 text: the kind
-- $2 text[]: their ids
-- Concurrency and clocks: as read_due. By primary key.
select id as work_id, team, lease_epoch as epoch, cancel
from eventlog.work
where id = any ($2) and kind = $1 and owner is null and due_at is not null
  and (due_at <= now() or due_at > now() + interval '2 minutes')
order by priority desc, seq
