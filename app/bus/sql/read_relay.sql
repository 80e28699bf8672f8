-- Where the relay was when it last told; no row: it has never published.
-- Concurrency: a plain read. Only the leading relay and a restore write it.
select incarnation, position, sequence, accepted_message, accepted_sequence, refusal, updated_at from eventlog.relay
