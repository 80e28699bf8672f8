-- When the first event after a position was recorded, and where it is; no row: there is none.
-- $1 bigint
-- Concurrency: times grow with positions but for writers that overlap: by seconds, which a window of days does not mind.
select position, recorded_at from eventlog.event where position > $1 order by position limit 1
