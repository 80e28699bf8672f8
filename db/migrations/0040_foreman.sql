-- What the foreman and the scheduler keep: how far each run is, and who waits. It follows from the log, and moves in the
-- transactions of the events that it causes; it is no view, and nothing makes it anew.

create schema foreman;

create table foreman.run (
    id          text collate "C" primary key,
    team        text collate "C" not null,
    evaluations integer not null,                        -- as requested
    trials      integer not null,                        -- an evaluation
    expanded    integer not null default 0,              -- evaluations made so far, in the order of the roster
    completed   integer not null default 0,              -- of those, ended
    open_trials integer not null default 0,
    cancelling  boolean not null default false,          -- no further evaluation is made
    cancel_told boolean not null default false,          -- every open trial was told
    ended       boolean not null default false
) with (fillfactor = 70);
create index run_to_expand on foreman.run (open_trials, id) where not ended and not cancelling and expanded < evaluations;
create index run_to_cancel on foreman.run (id) where cancelling and not cancel_told and not ended;
create index run_to_complete on foreman.run (id)
    where not ended and completed = expanded and (expanded = evaluations or cancelling);

create table foreman.evaluation (
    id          text collate "C" primary key,
    run_id      text collate "C" not null,
    trials      integer not null,
    open_trials integer not null,
    completed   boolean not null default false
) with (fillfactor = 70);
create index evaluation_to_complete on foreman.evaluation (id) where open_trials = 0 and not completed;

create table foreman.trial (
    id            text collate "C" primary key,
    evaluation_id text collate "C" not null,
    run_id        text collate "C" not null,
    outcome       text collate "C",                      -- scored, errored, cancelled; null: open
    fault         text collate "C"                       -- of errored
) with (fillfactor = 70);
create index trial_evaluation on foreman.trial (evaluation_id);
create index trial_run on foreman.trial (run_id);

create schema scheduler;

-- Trials that wait for a slot, first come first served within a priority.
create table scheduler.queued (
    trial_id text collate "C" primary key,
    team     text collate "C" not null,
    run_id   text collate "C" not null,
    event_id uuid     not null,                          -- of trial.queued: what the admission is caused by
    priority smallint not null,
    position bigint   not null
);
create index queued_order on scheduler.queued (priority desc, position);

-- Held while slots are counted and trials admitted: two schedulers cannot both give away the last slot.
create table scheduler.lock (only_one boolean primary key default true check (only_one));
insert into scheduler.lock default values;

grant usage on schema foreman, scheduler to seatrial_app;
grant select, insert, update, delete on all tables in schema foreman, scheduler to seatrial_app;
