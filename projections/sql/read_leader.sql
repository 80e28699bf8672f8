-- Whether a projector leads: somebody holds its advisory lock in this database.
-- $1 bigint: the lock
select exists (
    select from pg_locks as l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1
      and l.database = (select oid from pg_database where datname = current_database())
      and (l.classid::bigint << 32 | l.objid::bigint) = $1
)
