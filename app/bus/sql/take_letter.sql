-- The oldest dead letter that shall be tried again; it is gone when the transaction commits.
-- $1 text: the handler
-- Concurrency: in the transaction of the effect. Rows that another process is trying are passed over, but never a letter
-- behind an older one of the same stream: the order within a stream is kept.
delete from eventlog.dead_letter as d
using (
    select c.handler, c.position
    from eventlog.dead_letter as c
    where c.handler = $1 and c.replay_at is not null
      and not exists (select from eventlog.dead_letter as o
                      where o.handler = c.handler and o.stream = c.stream and o.position < c.position)
    order by c.position
    limit 1
    for update skip locked
) as chosen
where d.handler = chosen.handler and d.position = chosen.position
returning d.handler, d.position, d.stream, d.error_code, d.attempts, d.parked_at, d.replay_at
