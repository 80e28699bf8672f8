-- Position, hash and stream of the events of one segment.
-- $1 bigint: after this position, $2 bigint: up to this position
select position, hash, stream from eventlog.event where position > $1 and position <= $2 order by position
