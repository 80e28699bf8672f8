-- The beat of every process that works.
-- Concurrency: a plain read.
select id, beat from eventlog.worker
