-- Put a checkpoint where a rebuilt view is.
-- $1 text: its name
-- $2 bigint: position
-- Concurrency: only after lock_checkpoints, in the same transaction.
update eventlog.checkpoint set position = $2, updated_at = now() where name = $1
