-- The registry: what is configured rather than what happened. Rows that people name and change (teams, keys, tasks), and
-- a few that only carry something to where it is used (uploads, rosters, inventories).
--
-- A row of team, api_key or task changes in one transaction with its audit event (append_direct), whose stream is the
-- row's id. Names live here and in the event's private part, nowhere else. Ids are those of app/ids.py; digests are the
-- 32 bytes of a SHA-256.
create schema seatrial;

-- The tenant. Everything belongs to exactly one team.
create table seatrial.team (
    id              text collate "C" primary key check (id ~ '^tem_[0-7][0-9a-hjkmnp-tv-z]{25}$'),
    name            text collate "C" not null unique check (name <> '' and length(name) <= 100),
    last_run_number bigint      not null default 0 check (last_run_number >= 0),
                                                         -- taken by `update … returning` in the transaction of the run
    trial_limit     integer     check (trial_limit > 0), -- trials at a time; null: only the instance's slots limit
    created_at      timestamptz not null default clock_timestamp()
);

-- A machine's way in: `sea_<id>_<secret>`. Only the SHA-256 of the key is kept: its secret has 256 random bits, so there
-- is nothing to guess and a slow hash would protect nothing (app/access/keys.py).
create table seatrial.api_key (
    id           text collate "C" primary key check (id ~ '^key_[0-7][0-9a-hjkmnp-tv-z]{25}$'),
    team         text collate "C" not null references seatrial.team,
    name         text        not null check (name <> '' and length(name) <= 100),
    role         text collate "C" not null check (role in ('viewer', 'member', 'admin')),
    operator     boolean     not null default false,     -- may also run the instance
    hash         bytea       not null unique check (octet_length(hash) = 32),
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz,                            -- null: until revoked
    revoked_at   timestamptz,
    last_used_at timestamptz                             -- to the minute
);
create index api_key_of_team on seatrial.api_key (team, id);

-- A named task. What was uploaded under the name, and what became of it, are revisions: streams of the log.
create table seatrial.task (
    id         text collate "C" primary key check (id ~ '^tsk_[0-7][0-9a-hjkmnp-tv-z]{25}$'),
    team       text collate "C" not null references seatrial.team,
    name       text collate "C" not null check (name <> '' and length(name) <= 200),
    created_at timestamptz not null default clock_timestamp(),
    unique (team, name)
);

-- A pack on its way in: open -> stored (its bytes are an object) -> finalized (a revision has it). Rows that expire
-- before that are swept with their object.
create table seatrial.upload (
    id          text collate "C" primary key check (id ~ '^upl_[0-7][0-9a-hjkmnp-tv-z]{25}$'),
    team        text collate "C" not null references seatrial.team,
    created_by  text collate "C" not null,               -- the id of a key or a person
    created_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null,
    object_key  text collate "C",
    sha256      bytea       check (octet_length(sha256) = 32),
    size_bytes  bigint      check (size_bytes >= 0),
    state       text collate "C" not null default 'open' check (state in ('open', 'stored', 'finalized')),
    revision    text collate "C",                        -- the winner's, when several uploads had the same pack
    check (state = 'open' or (object_key is not null and sha256 is not null and size_bytes is not null)),
    check ((state = 'finalized') = (revision is not null))
);
create index upload_to_sweep on seatrial.upload (expires_at) where state <> 'finalized';

-- The frozen member list of a run (app/domain/run.py: Roster), named by `run.requested`. Written in the transaction that
-- names it, by whoever is first; never changed.
create table seatrial.roster (
    digest     bytea       primary key check (digest = sha256(members)),
    members    bytea       not null,
    created_at timestamptz not null default clock_timestamp()
);

-- What is inside an image, found once: the package inventory that every SBOM of that image is made from, as an object.
-- A row of another `format` is one that an older inventory wrote: it is made again, over the old one.
create table seatrial.sbom_cache (
    image_digest text collate "C" primary key,
    format       integer     not null default 1,
    object_key   text collate "C" not null,
    created_at   timestamptz not null default clock_timestamp()
);

grant usage on schema seatrial to seatrial_app;
grant select, insert, update on seatrial.team, seatrial.task to seatrial_app;
grant select, insert, update (revoked_at, last_used_at) on seatrial.api_key to seatrial_app;
grant select, insert, update, delete on seatrial.upload, seatrial.sbom_cache to seatrial_app;
grant select, insert, delete on seatrial.roster to seatrial_app;
