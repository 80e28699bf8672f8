-- Write a group of units; one outcome a unit, in their order. Alone, the statement is the transaction.
-- $1 eventlog.unit[]
-- $2 uuid: the incarnation that the caller belongs to (null: any)
-- Concurrency: eventlog.append (db/migrations/0003_append.sql) takes its locks first and decides after.
select refusal, repeated, positions, head_hash, actual_version, holder, answer, answer_position
from eventlog.append($1, $2)
