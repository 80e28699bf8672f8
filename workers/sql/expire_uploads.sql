-- Forget at most $1 uploads that expired before anybody finalized them; how many there were. Their objects are removed
-- after (app/commands/uploads.py: sweep), by the upload's id: a kill in between leaves nothing for good. Of two that expire
-- at a time each takes other rows.
with expired as (
    delete from seatrial.upload
    where id in (
        select id from seatrial.upload where state <> 'finalized' and expires_at < now()
        order by expires_at limit $1 for update skip locked)
    returning id
)
select count(*) from expired
