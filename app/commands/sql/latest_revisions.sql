-- For each task the revision that a run takes: the latest one that is ready, or else the latest one, to say why not.
--   $1 text[]  task ids, of one team
-- Reads the log itself, not a view, so it never lags. A task's revisions are the holders of the names that start with
-- its id and a slash ('0' is the character after the slash); no revision of a task is without its name.
select task.id as task_id, latest.holder as revision_id, latest.uploaded, latest.schema_version,
       latest.ready, latest.ready_version
from unnest($1::text[]) as task (id)
join lateral (
    select r.holder, first.position, first.data as uploaded, first.schema_version,
           done.data as ready, done.schema_version as ready_version
    from eventlog.reservation as r
    join eventlog.event as first on first.stream = r.holder and first.version = 1
    left join lateral (
        select e.data, e.schema_version
        from eventlog.event as e
        where e.stream = r.holder and e.type = 'revision.ready'
        limit 1) as done on true
    where r.scope = 'revision' and r.key >= task.id || '/' and r.key < task.id || '0'
    order by (done.data is not null) desc, first.position desc
    limit 1) as latest on true
