-- Take at most $1 expired uploads away and name their objects. An object that another upload or a revision shares (equal
-- bytes are one blob) is not orphaned: finalized uploads keep their row, which names it.
with expired as (
    delete from seatrial.upload
    where id in (
        select id from seatrial.upload where state <> 'finalized' and expires_at < now()
        order by expires_at limit $1 for update skip locked)
    returning id, object_key
)
select e.object_key,
       e.object_key is not null and not exists (
           select from seatrial.upload as u where u.object_key = e.object_key and u.id not in (select id from expired)
       ) as orphaned
from expired as e
