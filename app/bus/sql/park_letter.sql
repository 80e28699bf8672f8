-- An effect has failed too often, or failed again: it waits for an operator.
-- $1 text: the handler
-- $2 bigint: the position of the event
-- $3 text: its stream
-- $4 text: a code
-- $5 integer: tries so far
-- Concurrency: in the transaction that moves the handler past the event. The same letter parked again counts up.
insert into eventlog.dead_letter as d (handler, position, stream, error_code, attempts) values ($1, $2, $3, $4, $5)
on conflict (handler, position) do update
set error_code = excluded.error_code, attempts = d.attempts + excluded.attempts, parked_at = now(), replay_at = null
