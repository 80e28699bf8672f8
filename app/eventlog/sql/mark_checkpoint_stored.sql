-- The object store has this checkpoint.
-- $1 bigint: number, $2 timestamptz: when
-- Concurrency: storing twice puts the same bytes under the same name, so the first mark stays.
update eventlog.merkle_checkpoint set stored_at = $2 where number = $1 and stored_at is null
