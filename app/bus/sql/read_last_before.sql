-- The event at or before a position; 0: there is none.
-- $1 bigint
-- Concurrency: asked for positions that were published, hence decided, or older than the window.
select coalesce(max(position), 0) from eventlog.event where position <= $1
