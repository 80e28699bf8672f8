-- How far a consumer is.
-- $1 text: its name
-- Concurrency: a plain read. Whoever acts on it saves by compare-and-set in the transaction of the effect.
select position from eventlog.checkpoint where name = $1
