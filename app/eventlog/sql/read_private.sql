-- The private part of events; null where there is none or it was erased.
-- $1 bigint[]: positions
select position, private, private_hash is not null as had_private
from eventlog.event
where position = any ($1)
