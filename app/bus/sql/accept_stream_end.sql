-- An operator accepts the end of the stream as it is: a message that the (restored) log does not have.
-- $1 uuid: the new incarnation
-- $2 uuid: the message's event id; null: the stream had none
-- $3 bigint: its sequence; null: as above
-- Concurrency: in the transaction that opens the incarnation. A relay reads it when it next resumes.
insert into eventlog.relay as r (incarnation, position, sequence, accepted_message, accepted_sequence)
values ($1, 0, 0, $2, $3)
on conflict (only_one) do update
set incarnation = excluded.incarnation, accepted_message = excluded.accepted_message,
    accepted_sequence = excluded.accepted_sequence, refusal = null, updated_at = now()
