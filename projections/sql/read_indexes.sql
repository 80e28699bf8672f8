-- The indexes of a table that hold no constraint: their names, and the statements that make them again.
-- $1 text: schema
-- $2 text: table
select quote_ident(c.relname) as name, pg_get_indexdef(i.indexrelid) as definition
from pg_index as i
join pg_class as c on c.oid = i.indexrelid
where i.indrelid = format('%I.%I', $1::text, $2::text)::regclass
  and not exists (select from pg_constraint as k where k.conindid = i.indexrelid)
order by c.relname
