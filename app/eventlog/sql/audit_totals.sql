-- How many events there are after a position, and the last position.
-- $1 bigint: position
select count(*) as events, coalesce(max(position), 0) as last_position from eventlog.event where position > $1
