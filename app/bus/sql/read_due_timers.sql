-- Timers that have run out, the longest overdue first.
-- $1 integer: at most so many
-- Concurrency: read without a lock. Whoever acts appends to the timer's stream and sets or calls off the timer in that
-- unit, so the stream's version decides between two that act at once.
select stream, key, team, due_at from eventlog.timer where due_at <= now() order by due_at limit $1
