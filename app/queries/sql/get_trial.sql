-- The trial with an id, or two of those with ids in a range.
-- $1 text: team
-- $2 text: first id
-- $3 text: last id
select t.* from views.trial as t where t.id >= $2 and t.id <= $3 and t.team = $1 order by t.id limit 2
