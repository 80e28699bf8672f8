-- An operator asks that dead letters be tried again.
-- $1 text: the handler
-- $2 bigint: the position; null: all of the handler
-- Concurrency: one statement; a letter that was taken meanwhile is gone and not counted.
with asked as (
    update eventlog.dead_letter set replay_at = now()
    where handler = $1 and ($2::bigint is null or position = $2) and replay_at is null
    returning 1
)
select count(*) from asked
