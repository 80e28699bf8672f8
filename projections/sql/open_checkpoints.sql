-- Make the checkpoints that are missing, and bring those of an earlier life of the log into this one. The positions stay: a
-- restore brings log and views back together, from one backup.
-- $1 text[]: names
-- $2 uuid: the incarnation of the caller
-- Concurrency: the row of the log is share-locked by nobody, so a restore may begin right after; then move_checkpoints
-- moves nothing.
insert into eventlog.checkpoint as c (name, position, incarnation)
select wanted.name, 0, log.incarnation
from unnest($1::text[]) as wanted(name)
join eventlog.log as log on log.incarnation = $2
on conflict (name) do update set incarnation = excluded.incarnation where c.incarnation <> excluded.incarnation
