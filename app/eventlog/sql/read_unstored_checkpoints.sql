-- Checkpoints that nobody has put into the object store, as far as is known; oldest first.
select number, envelope from eventlog.merkle_checkpoint where stored_at is null order by number limit 100
