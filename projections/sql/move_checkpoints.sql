-- Move the checkpoints of several views, each from where the caller believes it; returns the names of those that moved.
-- A halt that a view has passed by this is over.
-- $1 text[]: views
-- $2 bigint[]: where the caller found each
-- $3 bigint: where all are now
-- $4 uuid: the incarnation of the caller
-- Concurrency: compare-and-set, in the transaction of the rows. Of two projectors the second waits for the first one's row
-- locks, then finds the position moved and gets fewer names back: it must roll its rows back. Likewise a process of an
-- earlier life of the log, and one whose view was rebuilt meanwhile. The locks are taken in the order of the names, as a
-- rebuild takes them, so that the two never wait for each other in a circle.
with passed as (
    delete from views.halted as h where h.view = any ($1) and h.position <= $3
), believed as materialized (
    select c.name
    from eventlog.checkpoint as c
    join unnest($1::text[], $2::bigint[]) as b(view, position)
      on c.name = 'view.' || b.view and c.position = b.position
    where exists (select from eventlog.log as log where log.incarnation = $4)
    order by c.name
    for update of c
)
update eventlog.checkpoint as c
set position = $3, updated_at = now()
from believed
where c.name = believed.name
returning c.name
