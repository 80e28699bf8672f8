-- Begin a new life of the log.
-- $1 bigint: the greatest position that anybody outside may have seen
-- Concurrency: waits for the appends under way; those that come later belong to the old life and are refused.
select incarnation, first_position from eventlog.open_incarnation($1)
