-- The read models: what `projections` writes and `app/queries` reads. These tables are the contract between the two.
--
-- * Every row can be made again from the log alone, so nothing here is precious, and nothing here is private: where an
--   event has free text (a name, a message), the row keeps the event's position, and the reader asks the log.
-- * `position`, where nothing else is said, is that of the event which made the row. It is unique, and it grows in the
--   order in which rows appear: the keyset of every list.
-- * Foreign data is `json`, not jsonb: it is kept as it came, also where jsonb would refuse it (\u0000).
-- * Tables named <view>_<thing> are a view's own memory: what it must know of open things to fold their next event. No
--   view reads the tables of another, so each can halt, and be rebuilt, alone.
-- * Keys and indexes have their default names, so that a table built aside (schema views_aside) and moved here has the
--   same ones. Rows that change often leave room on their page for HOT updates.
--
-- The projector owns the tables: a rebuild makes, fills and swaps them with no other right than this role.
create schema views_aside;                               -- tables being rebuilt or verified
grant usage, create on schema views, views_aside to seatrial_projector;
set local role seatrial_projector;
alter default privileges in schema views, views_aside grant select on tables to seatrial_app;

-- A view that met an event it cannot fold: it stays before it, and says so here.
create table views.halted (
    view       text collate "C" primary key,
    position   bigint           not null,                -- of the event
    stream     text collate "C" not null,
    type       text collate "C" not null,
    error_code text collate "C" not null,                -- unknown_event, event_malformed, inconsistent, not_storable
    halted_at  timestamptz      not null default now()
);

create table views.task (
    id               text collate "C" primary key,
    team             text collate "C" not null,
    position         bigint           not null,          -- task.created (its name), or the first revision
    created_at       timestamptz      not null,
    revisions        bigint           not null,
    ready            bigint           not null,
    rejected         bigint           not null,
    evaluations      bigint           not null,
    last_revision    text collate "C",
    last_revision_at timestamptz,
    ready_revision   text collate "C",                   -- of the ready ones, the one uploaded last
    ready_position   bigint                              -- its upload
);
create index on views.task (team, position);

create table views.task_revision (                       -- revisions neither ready nor rejected
    id       text collate "C" primary key,
    team     text collate "C" not null,
    task_id  text collate "C" not null,
    position bigint           not null
);

create table views.revision (
    id               text collate "C" primary key,
    team             text collate "C" not null,
    position         bigint           not null,          -- revision.uploaded
    task_id          text collate "C" not null,
    status           text collate "C" not null,          -- uploaded, building, ready, rejected
    pack_digest      text collate "C" not null,
    archive_digest   text collate "C" not null,
    archive_bytes    bigint           not null,
    object_key       text collate "C" not null,
    files            bigint           not null,
    uploaded_at      timestamptz      not null,
    attempt          bigint           not null,
    worker           text collate "C",
    build_started_at timestamptz,
    retry_at         timestamptz,
    ended_at         timestamptz,
    image            json,
    image_digest     text collate "C",
    build_ms         bigint,
    log_key          text collate "C",
    warnings         bigint           not null,
    failure          json,
    failure_code     text collate "C",
    text_position    bigint                              -- the event with warnings, or with message and errors
) with (fillfactor = 80);
create index on views.revision (team, position);
create index on views.revision (task_id, position);

create table views.run (
    id                    text collate "C" primary key,
    team                  text collate "C" not null,
    position              bigint           not null,     -- run.requested (its name and labels)
    number                bigint           not null,
    status                text collate "C" not null,     -- requested, running, cancelling, completed
    outcome               text collate "C",              -- succeeded, failed, cancelled
    agent                 json             not null,
    agent_name            text collate "C" not null,
    agent_digest          text collate "C" not null,
    trials                bigint           not null,     -- per evaluation
    evaluations           bigint           not null,
    evaluations_created   bigint           not null,
    evaluations_completed bigint           not null,
    roster                text collate "C" not null,
    priority              bigint           not null,
    derived_from          text collate "C",
    deadline_seconds      bigint,
    cancel_reason         text collate "C",
    queued                bigint           not null,     -- trials by status
    admitted              bigint           not null,
    running               bigint           not null,
    scored                bigint           not null,
    errored               bigint           not null,
    cancelled             bigint           not null,
    tally                 json,                          -- of run.completed
    created_at            timestamptz      not null,
    started_at            timestamptz,                   -- its first trial
    ended_at              timestamptz
) with (fillfactor = 50);
create index on views.run (team, number);
create index on views.run (team, position);
create index on views.run (team, status, position);
create index on views.run (team, agent_name, position);

create table views.run_trial (                           -- open trials
    id     text collate "C" primary key,
    team   text collate "C" not null,
    run_id text collate "C" not null,
    status text collate "C" not null
) with (fillfactor = 70);

create table views.evaluation (
    id           text collate "C" primary key,
    team         text collate "C" not null,
    position     bigint           not null,              -- evaluation.created
    run_id       text collate "C" not null,
    ordinal      bigint           not null,
    task_id      text collate "C" not null,
    revision_id  text collate "C" not null,
    pack_digest  text collate "C" not null,
    image        json             not null,
    agent        json             not null,
    agent_name   text collate "C" not null,
    agent_digest text collate "C" not null,
    trials       bigint           not null,
    status       text collate "C" not null,              -- open, completed
    outcome      text collate "C",
    queued       bigint           not null,
    admitted     bigint           not null,
    running      bigint           not null,
    scored       bigint           not null,
    errored      bigint           not null,
    cancelled    bigint           not null,
    tally        json,                                   -- of evaluation.completed
    created_at   timestamptz      not null,
    started_at   timestamptz,
    ended_at     timestamptz
) with (fillfactor = 60);
create index on views.evaluation (team, position);
create index on views.evaluation (run_id, position);
create index on views.evaluation (task_id, position);

create table views.evaluation_trial (                    -- open trials
    id            text collate "C" primary key,
    team          text collate "C" not null,
    evaluation_id text collate "C" not null,
    status        text collate "C" not null
) with (fillfactor = 70);

create table views.trial (
    id               text collate "C" primary key,
    team             text collate "C" not null,
    position         bigint           not null,          -- trial.queued
    run_id           text collate "C" not null,
    evaluation_id    text collate "C" not null,
    revision_id      text collate "C" not null,
    ordinal          bigint           not null,
    priority         bigint           not null,
    status           text collate "C" not null,          -- queued, admitted, running, scored, errored, cancelled
    cancel_requested boolean          not null,
    executions       bigint           not null,
    execution_id     text collate "C",                   -- the latest
    worker           text collate "C",
    phase            text collate "C",                   -- where the latest execution is, or was
    reward           double precision,
    rewards          json,
    validity         json,
    result           json,
    adopted          boolean          not null,
    failure          json,                               -- of the latest execution
    failure_code     text collate "C",
    queued_at        timestamptz      not null,
    admitted_at      timestamptz,
    started_at       timestamptz,                        -- the first execution
    retry_at         timestamptz,
    ended_at         timestamptz,
    text_position    bigint                              -- the latest event with a message
) with (fillfactor = 60);
create index on views.trial (team, position);
create index on views.trial (run_id, position);
create index on views.trial (evaluation_id, position);

create table views.execution (
    trial_id      text collate "C" not null,
    number        bigint           not null,             -- 1, 2, 3: which try of the trial
    id            text collate "C" not null,
    team          text collate "C" not null,
    position      bigint           not null,             -- trial.started
    worker        text collate "C" not null,
    epoch         bigint           not null,
    status        text collate "C" not null,             -- running, scored, failed, cancelled, superseded
    phase         text collate "C",
    reward        double precision,
    failure       json,
    failure_code  text collate "C",
    result_key    text collate "C",
    result_digest text collate "C",
    timings_ms    json,
    started_at    timestamptz      not null,
    ended_at      timestamptz,
    text_position bigint,                                -- the event with a message
    primary key (trial_id, number)
) with (fillfactor = 70);
create index on views.execution (id);

-- What is known so far of the score of an evaluation, or of a whole run.
create table views.score (
    id             text collate "C" primary key,         -- of the evaluation or run
    team           text collate "C" not null,
    position       bigint           not null,            -- evaluation.created, run.requested
    kind           text collate "C" not null,            -- evaluation, run
    run_id         text collate "C" not null,
    trials         bigint           not null,            -- out of how many, in the end
    scored         bigint           not null,
    cancelled      bigint           not null,
    errored        json             not null,            -- {fault: trials}
    reward_sum     numeric          not null,            -- exact: every float is a finite decimal
    reward_squares numeric          not null,            -- likewise
    passed         bigint           not null,            -- trials with reward 1
    binary_rewards boolean          not null,            -- all rewards so far are 0 or 1
    mean           double precision,                     -- null when nothing scored
    standard_error double precision                      -- of the mean; null below two scored trials
) with (fillfactor = 50);
create index on views.score (run_id, position);

create table views.score_trial (                         -- open trials
    id            text collate "C" primary key,
    team          text collate "C" not null,
    run_id        text collate "C" not null,
    evaluation_id text collate "C" not null
);

create table views.provenance (
    id                text collate "C" primary key,      -- the stream of the evidence
    team              text collate "C" not null,
    position          bigint           not null,         -- evidence.owed
    evaluation_id     text collate "C" not null,
    run_id            text collate "C" not null,
    status            text collate "C" not null,         -- owed, sealing, sealed
    attempt           bigint           not null,
    failure           json,                              -- of the latest try, until it is sealed
    failure_code      text collate "C",
    retry_at          timestamptz,
    archive_key       text collate "C",
    archive_digest    text collate "C",
    archive_bytes     bigint,
    manifest_digest   text collate "C",
    provenance_digest text collate "C",
    sbom_digest       text collate "C",
    files             bigint,
    owed_at           timestamptz      not null,
    sealed_at         timestamptz,
    sealed_position   bigint
) with (fillfactor = 80);
create index on views.provenance (evaluation_id);
create index on views.provenance (run_id, position);

-- Which events concern a team, and which a run or a revision: `correlation` is its id, from the event's meta.
create table views.timeline (
    team        text collate "C" not null,
    position    bigint           not null,
    stream      text collate "C" not null,
    type        text collate "C" not null,
    correlation text collate "C",
    primary key (team, position)
);
create index on views.timeline (correlation, position) where correlation is not null;
create index on views.timeline (team, type, position);

reset role;
