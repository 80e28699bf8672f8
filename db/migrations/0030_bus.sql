-- What the bus keeps in Postgres: where the relay is, which dead letters shall be tried again, and the index that the
-- scheduler counts slots by.

-- One row: the last event that JetStream has confirmed. JetStream's own last message is where the relay resumes; this row
-- says where, when the stream has none left (all aged out), and shows the state to operators.
create table eventlog.relay (
    only_one         boolean     primary key default true check (only_one),
    incarnation      uuid        not null,
    position         bigint      not null check (position >= 0),
    sequence         bigint      not null check (sequence >= 0),    -- of that event in the stream EVENTS
    -- The end of the stream as an operator accepted it with a restore: a message that the log does not have.
    accepted_message uuid,
    accepted_sequence bigint,
    refusal          text collate "C",                              -- why the relay stands still; null: it does not
    updated_at       timestamptz not null default now()
) with (fillfactor = 50);

grant select, insert, update on eventlog.relay to seatrial_app;

-- Asked for by an operator: the handler tries this dead letter again, then removes it.
alter table eventlog.dead_letter add replay_at timestamptz;
create index dead_letter_replay on eventlog.dead_letter (handler, position) where replay_at is not null;

-- Slots in use: admitted and waiting for a worker, or at work. kind = $1 and (owner is not null or due_at is not null).
create index work_open on eventlog.work (kind, team) where owner is not null or due_at is not null;
