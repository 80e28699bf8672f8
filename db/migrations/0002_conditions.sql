-- What must hold in the same transaction as an event: names taken, requests answered, work handed out, clocks set.
-- Written by eventlog.append alone (0003).

-- A name that one stream holds alone until it releases it.
create table eventlog.reservation (
    scope  text collate "C" not null,
    key    text collate "C" not null,
    holder text collate "C" not null,
    primary key (scope, key)
);

-- The answer to a request that named an idempotency key; pruned by eventlog.forget_requests (0004).
create table eventlog.idempotency (
    team         text collate "C" not null,
    key          text collate "C" not null,
    request_hash bytea            not null,
    answer       bytea,
    position     bigint           not null,              -- of the last event of the unit
    recorded_at  timestamptz      not null,
    primary key (team, key)
);
create index idempotency_age on eventlog.idempotency (recorded_at);

-- Work to be done by whoever owns it. A claim is a unit guarded by the epoch; the epoch moves whenever the owner
-- changes, so an old owner is refused everywhere. Nothing beats on this table: a worker has one beat row (0005).
create table eventlog.work (
    id          text collate "C" primary key,
    kind        text collate "C" not null,
    team        text collate "C" not null,
    seq         bigint generated always as identity,     -- in order of creation: first come, first served
    priority    smallint         not null default 0,     -- higher first
    due_at      timestamptz,                             -- claimable from then on; null: not now
    owner       text collate "C",
    lease_epoch bigint           not null default 0,
    cancel      boolean          not null default false
) with (fillfactor = 70);
-- A free worker asks for: kind = $1 and owner is null and due_at <= now() order by priority desc, seq limit n.
create index work_due on eventlog.work (kind, priority desc, seq) where owner is null and due_at is not null;
-- The sweeper and the heartbeat ask for the rows of an owner.
create index work_owner on eventlog.work (owner) where owner is not null;

-- A clock set by a stream for itself; the key is the stream's own. A timer that is called off is gone.
create table eventlog.timer (
    stream text collate "C" not null,
    key    text collate "C" not null,
    team   text collate "C" not null,
    due_at timestamptz      not null,
    primary key (stream, key)
);
create index timer_due on eventlog.timer (due_at);
