-- The storage parameters of a table (fillfactor), which `create table … like` does not copy.
-- $1 text: schema
-- $2 text: table
select coalesce(array_to_string(c.reloptions, ', '), '')
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = $2
