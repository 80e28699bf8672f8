-- Forget at most $2 answers to idempotency keys that were given before $1; how many there were.
select eventlog.forget_requests($1, $2)
