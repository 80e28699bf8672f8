-- The event log: streams of events, append-only, each stream a chain of hashes.
--
-- eventlog.append (0003) is the only way in. Events never change, but for one thing: `private` and `salt` may become
-- null, together (erasure, 0004).
create schema eventlog;

-- One row: which life of the log this is. A restore from a backup opens a new life (0004), so that every process,
-- cursor and checkpoint of the old one is recognised and refused.
create table eventlog.log (
    only_one    boolean     primary key default true check (only_one),
    incarnation uuid        not null default uuidv7(),
    opened_at   timestamptz not null default clock_timestamp()
);
insert into eventlog.log default values;

create table eventlog.stream (
    id        text collate "C" primary key,
    category  text collate "C" not null,
    team      text collate "C" not null,
    version   integer          not null check (version > 0),
    head_hash bytea            not null check (octet_length(head_hash) = 32)
) with (fillfactor = 80);                                -- room for HOT updates: there is no other index

create table eventlog.event (
    position       bigint generated always as identity primary key,
    stream         text collate "C" not null check (stream <> ''),
    version        integer          not null check (version > 0),
    event_id       uuid             not null,            -- no index: it costs a quarter of the throughput (measured)
    type           text collate "C" not null check (type <> ''),
    schema_version smallint         not null check (schema_version > 0),
    team           text collate "C" not null,
    recorded_at    timestamptz      not null,
    data           bytea            not null,            -- JSON, exactly as hashed
    meta           bytea            not null,
    private        bytea,                                -- free text and anything personal; never published
    salt           bytea,
    private_hash   bytea,                                -- SHA-256(salt, private): outlives an erasure
    hash           bytea            not null,
    unique (stream, version),
    check ((private is null) = (salt is null)),
    check (private is null or private_hash is not null),
    check (octet_length(data) + octet_length(meta) + coalesce(octet_length(private), 0) <= 262144)
);
-- Values of a few kilobytes are read whole and hashed: compressing them would cost more than it saves.
alter table eventlog.event
    alter data set storage external, alter meta set storage external, alter private set storage external;

create function eventlog.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'eventlog.event is append-only' using errcode = 'read_only_sql_transaction';
end $$;

create trigger event_is_immutable before update on eventlog.event for each row
    when (new.private is not null or new.salt is not null
          or (new.position, new.stream, new.version, new.event_id, new.type, new.schema_version, new.team,
              new.recorded_at, new.data, new.meta, new.private_hash, new.hash)
             is distinct from
             (old.position, old.stream, old.version, old.event_id, old.type, old.schema_version, old.team,
              old.recorded_at, old.data, old.meta, old.private_hash, old.hash))
    execute function eventlog.refuse_change();
create trigger event_is_kept before delete on eventlog.event for each row execute function eventlog.refuse_change();
create trigger events_are_kept before truncate on eventlog.event execute function eventlog.refuse_change();

-- For a person at a prompt. No private part.
create view eventlog.event_text as
select position, stream, version, type, schema_version, team, recorded_at,
       convert_from(data, 'UTF8') as data, convert_from(meta, 'UTF8') as meta, event_id
from eventlog.event;
