-- Keep a signed checkpoint.
-- $1 bigint: number, $2 bigint: position, $3 bytea: envelope, $4 bytea: leaves, $5 timestamptz: signed at
-- Concurrency: under the signers' advisory lock; were it lost, the primary key lets one of two win.
insert into eventlog.merkle_checkpoint (number, position, envelope, leaves, signed_at) values ($1, $2, $3, $4, $5)
