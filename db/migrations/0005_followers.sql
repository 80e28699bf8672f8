-- Those who follow the log and those who work: how far they are, that they live, what they could not do.

-- Every position up to here is decided: its event is visible, or will never be. Written by any tail (it only grows), so
-- that a replay need not look at gaps again.
create table eventlog.high_water (
    only_one boolean primary key default true check (only_one),
    position bigint  not null default 0
) with (fillfactor = 50);
insert into eventlog.high_water default values;

-- How far a consumer is: moved in the transaction of its effect. The incarnation is that of the log when it was moved.
create table eventlog.checkpoint (
    name        text collate "C" primary key,
    position    bigint      not null,
    incarnation uuid        not null,
    updated_at  timestamptz not null default now()
) with (fillfactor = 50);

-- One row a process that owns work; a heartbeat moves `beat` of that one row. Who watches a beat judges it by its own
-- clock, never by beat_at, which is for people.
create table eventlog.worker (
    id         text collate "C" primary key,
    kind       text collate "C" not null,
    slots      integer          not null check (slots >= 0),
    beat       bigint           not null default 0,
    started_at timestamptz      not null default now(),
    beat_at    timestamptz      not null default now()
) with (fillfactor = 50);

-- An effect that failed too often and waits for an operator: replay or skip.
create table eventlog.dead_letter (
    handler    text collate "C" not null,
    position   bigint           not null,
    stream     text collate "C" not null,
    error_code text collate "C" not null,
    attempts   integer          not null check (attempts > 0),
    parked_at  timestamptz      not null default now(),
    primary key (handler, position)
);
create index dead_letter_stream on eventlog.dead_letter (handler, stream);

-- The signed checkpoints (app/eventlog/checkpoints.py). `envelope` is the signed statement as it is also kept in the
-- object store; `leaves` are the 40 bytes (position, hash) of each event of the segment: they give the signed root, so an
-- audit can trust them as far as the signature, and name the very event that was changed or dropped.
create table eventlog.merkle_checkpoint (
    number     bigint primary key check (number > 0),
    position   bigint      not null unique,
    envelope   bytea       not null,
    leaves     bytea       not null,
    signed_at  timestamptz not null,
    stored_at  timestamptz                               -- in the object store since then
);
alter table eventlog.merkle_checkpoint alter leaves set storage external;
create index merkle_checkpoint_unstored on eventlog.merkle_checkpoint (number) where stored_at is null;
