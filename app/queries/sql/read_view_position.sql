-- The position that several views have all reached; 0 when one of them never began.
-- $1 text[]: names of their checkpoints
-- Concurrency: in the snapshot of the rows, this is exactly how far the rows are: the projector writes both in one
-- transaction.
select coalesce(min(coalesce(c.position, 0)), 0)
from unnest($1::text[]) as wanted(name)
left join eventlog.checkpoint as c on c.name = wanted.name
