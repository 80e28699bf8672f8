-- The transactions that may still make an event visible: they hold the write lock on the table of events now.
-- Concurrency: a position is drawn inside an INSERT only, after this lock was taken; the lock goes after the commit is
-- visible. So whoever has drawn a position and is not in the answer has ended, and its event, if any, is visible to the
-- next statement. Of this database only: tables of databases made from one template share their oid.
select coalesce(array_agg(distinct virtualtransaction), '{}')
from pg_locks
where locktype = 'relation' and mode = 'RowExclusiveLock' and granted
  and database = (select oid from pg_database where datname = current_database())
  and relation = 'eventlog.event'::regclass
