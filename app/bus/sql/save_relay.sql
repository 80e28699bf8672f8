-- The last event that JetStream has confirmed.
-- $1 uuid: the incarnation
-- $2 bigint: its position
-- $3 bigint: its sequence in the stream
-- Concurrency: written by the session that leads. A relay that lost the lead unnoticed may write an older place once: it is
-- used only when the stream is empty, and going on from an older place publishes nothing wrong.
insert into eventlog.relay as r (incarnation, position, sequence) values ($1, $2, $3)
on conflict (only_one) do update
set incarnation = excluded.incarnation, position = excluded.position, sequence = excluded.sequence, refusal = null,
    updated_at = now()
