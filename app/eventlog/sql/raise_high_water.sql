-- Remember that every position up to $1 is decided.
-- $1 bigint
-- Concurrency: it only grows, whoever writes last; nobody waits for a slower tail, because the row is skipped when locked.
update eventlog.high_water as h set position = $1
from (select only_one from eventlog.high_water where position < $1 for update skip locked) as mine
where h.only_one = mine.only_one
