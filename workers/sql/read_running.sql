-- Of the trials $1, those that a worker owns now, and the execution that it runs: the latest trial.started, for nobody
-- can own a trial without having appended one. Reads (stream, version) backwards, a row or two a trial.
select w.id as trial_id, convert_from(e.data, 'UTF8')::json ->> 'execution_id' as execution_id
from eventlog.work as w
cross join lateral (
    select data from eventlog.event
    where stream = w.id and type = 'trial.started'
    order by version desc limit 1
) as e
where w.id = any ($1::text[]) and w.owner is not null
