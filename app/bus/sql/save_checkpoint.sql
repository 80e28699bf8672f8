-- Move a consumer's checkpoint; no row comes back when it is not where the caller believes.
-- $1 text: its name
-- $2 bigint: where the caller found it (0: it may not exist yet)
-- $3 bigint: where it is now
-- Concurrency: compare-and-set. Of two that save at once the second waits for the first one's row lock, then sees the moved
-- position and gets nothing: it must roll its effect back. In the transaction of the effect.
insert into eventlog.checkpoint as c (name, position, incarnation)
select $1, $3, log.incarnation
from eventlog.log as log
where $2 = 0 or exists (select from eventlog.checkpoint as old where old.name = $1)
on conflict (name) do update
set position = excluded.position, incarnation = excluded.incarnation, updated_at = now()
where c.position = $2
returning true
