-- An operator gives dead letters up: their effects will not happen.
-- $1 text: the handler
-- $2 bigint: the position; null: all of the handler
-- Concurrency: one statement; a letter that is being tried in another transaction is waited for.
with skipped as (
    delete from eventlog.dead_letter
    where handler = $1 and ($2::bigint is null or position = $2)
    returning 1
)
select count(*) from skipped
