-- A process ends in order.
-- $1 text: its id
-- Concurrency: work that it still owns stays owned; the sweeper takes it when its lease time has passed.
delete from eventlog.worker where id = $1
