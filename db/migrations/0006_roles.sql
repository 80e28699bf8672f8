-- Who may do what. A process connects as a login that is a member of these roles and takes one of them on
-- (app/eventlog/connect.py). Where the migrating login may not create roles, an administrator runs db/roles.sql before.
--
--   seatrial_app        reads the log, appends through eventlog.append, moves checkpoints, beats, parks
--   seatrial_projector  reads the log without its private parts, writes schema `views`
--   seatrial_eraser     erases private parts through eventlog.erase
--
-- eventlog.open_incarnation is the owner's alone.
do $$
declare
    name text;
begin
    foreach name in array array['seatrial_app', 'seatrial_projector', 'seatrial_eraser'] loop
        if not exists (select from pg_roles where rolname = name) then
            execute format('create role %I nologin', name);
        end if;
        if not pg_has_role(current_user, name, 'set') then
            execute format('grant %I to current_user', name);
        end if;
    end loop;
end $$;

create schema views;                                     -- the read models: migrations 0020 to 0029

revoke all on all functions in schema eventlog from public;
grant usage on schema eventlog to seatrial_app, seatrial_projector, seatrial_eraser;
grant usage on schema views to seatrial_app, seatrial_projector;

grant select on all tables in schema eventlog to seatrial_app;
grant execute on function eventlog.append, eventlog.forget_requests to seatrial_app;
grant update (position) on eventlog.high_water to seatrial_app, seatrial_projector;
grant insert, update, delete on eventlog.checkpoint, eventlog.worker, eventlog.dead_letter to seatrial_app;
grant insert, update (stored_at) on eventlog.merkle_checkpoint to seatrial_app;

grant select (position, stream, version, event_id, type, schema_version, team, recorded_at, data, meta, private_hash, hash)
    on eventlog.event to seatrial_projector;
grant select on eventlog.log, eventlog.stream, eventlog.high_water, eventlog.checkpoint to seatrial_projector;
grant insert, update, delete on eventlog.checkpoint to seatrial_projector;

grant select on eventlog.event to seatrial_eraser;
grant execute on function eventlog.erase to seatrial_eraser;

alter default privileges in schema views grant select on tables to seatrial_app;
alter default privileges in schema views grant select, insert, update, delete, truncate on tables to seatrial_projector;
