-- The newest signed checkpoint.
-- Concurrency: read under the signers' advisory lock, so nobody adds one meanwhile.
select number, position, envelope, signed_at from eventlog.merkle_checkpoint order by number desc limit 1
