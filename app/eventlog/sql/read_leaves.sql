-- What a checkpoint seals of each event.
-- $1 bigint: after this position
-- $2 bigint: up to this position, which must be decided (tail.settle), or an event could appear below it later
-- $3 bigint: at most so many
select position, hash, recorded_at from eventlog.event
where position > $1 and position <= $2
order by position
limit $3
