-- Dead letters after a place, of one handler or of all.
-- $1 text: the handler; null: all
-- $2 text: the handler of the last letter that was read
-- $3 bigint: its position
-- $4 integer: at most so many
-- Concurrency: a plain read, for people.
select handler, position, stream, error_code, attempts, parked_at, replay_at
from eventlog.dead_letter
where ($1::text is null or handler = $1) and (handler, position) > ($2, $3)
order by handler, position
limit $4
