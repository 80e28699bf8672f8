-- Why the relay stands still, for whoever looks.
-- $1 uuid: the incarnation
-- $2 text: a code
-- Concurrency: as save_relay.
insert into eventlog.relay as r (incarnation, position, sequence, refusal) values ($1, 0, 0, $2)
on conflict (only_one) do update set refusal = excluded.refusal, updated_at = now()
