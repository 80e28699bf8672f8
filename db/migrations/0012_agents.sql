-- Agents that a team has stored under a name: `run -a NAME` then means one agent for ever, with its version, its model and
-- its settings. A row is written once, with its audit event (agent.created, in the stream named like the row), and never
-- changes: what a run pinned by it stays what the name says.
create table seatrial.agent (
    id         text collate "C" primary key check (id ~ '^agt_[0-7][0-9a-hjkmnp-tv-z]{25}$'),
    team       text collate "C" not null references seatrial.team,
    name       text collate "C" not null check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$' and name !~ '^agt_'),
                                                         -- no name looks like an id
    definition bytea       not null,                     -- canonical JSON (app/domain/agents.py: Agent)
    digest     bytea       not null check (digest = sha256(definition)),
    created_by text collate "C" not null,                -- the id of a key or a person
    created_at timestamptz not null default clock_timestamp(),
    unique (team, name)
);
create index agent_of_team on seatrial.agent (team, id);

grant select, insert on seatrial.agent to seatrial_app;
