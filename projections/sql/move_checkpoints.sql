-- Move the checkpoints of several views, each from where the caller believes it; returns the names of those that moved.
-- A halt that a view has passed by this is over.
-- $1 text[]: views
-- $2 bigint[]: where the caller found each
-- $3 bigint: where all are now
-- $4 uuid: the incarnation of the caller
-- Concurrency: compare-and-set, in the transaction of the rows. Of two projectors the second waits for the first one's row
-- locks, then finds the position moved and gets fewer names back: it must roll its rows back. Likewise a process of an
-- earlier life of the log, and one whose view was rebuilt meanwhile.
with passed as (
    delete from views.halted as h where h.view = any ($1) and h.position <= $3
)
update eventlog.checkpoint as c
set position = $3, updated_at = now()
from unnest($1::text[], $2::bigint[]) as believed(view, position)
where c.name = 'view.' || believed.view
  and c.position = believed.position
  and exists (select from eventlog.log as log where log.incarnation = $4)
returning c.name
