-- Which of some streams have a dead letter: later events of those must wait behind it.
-- $1 text: the handler
-- $2 text[]: the streams
-- Concurrency: read by the handler's one process, in the transaction that acts on it. Index dead_letter_stream.
select distinct stream from eventlog.dead_letter where handler = $1 and stream = any ($2)
