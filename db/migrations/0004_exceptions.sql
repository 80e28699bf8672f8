-- The three exceptions to "append only", each a function of its own with a privilege of its own (0006): a private part
-- is erased, an old answer is forgotten, the log begins a new life after a restore.

-- Take the private part out of one event, for ever, and say so in the log. The chain still verifies: it covers
-- private_hash, which stays. The stream erasure/POSITION can be opened once, so a second call changes nothing.
-- Old row versions live until VACUUM, and in WAL and backups: erased is not gone at once.
-- `reason` is a code (a ticket number): it is published, so it may not be free text.
-- Returns the position of event.erased; null: no such event, no private part, or erased before.
create function eventlog.erase(at_position bigint, reason text) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    target eventlog.event;
    answer eventlog.outcome;
begin
    if (reason ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$') is not true then
        raise exception 'reason: a code of letters, digits, dots and dashes, at most 64' using errcode = 'check_violation';
    end if;
    update eventlog.event set private = null, salt = null
    where position = at_position and private is not null
    returning * into target;
    if not found then
        return null;
    end if;
    select * into strict answer from eventlog.append(array[row(
        'erasure/' || at_position, 'erasure', target.team, 0,
        array[row(uuidv7(), 'event.erased', 1,
                  convert_to(json_build_object('position', at_position, 'stream', target.stream,
                                               'version', target.version, 'reason', reason)::text, 'UTF8'),
                  '{"actor":"eraser"}', null, null)::eventlog.new_event],
        null, null, null, null, null, null, null, null, null)::eventlog.unit]);
    if answer.refusal is not null then
        raise exception 'erasure of % refused: %', at_position, answer.refusal;
    end if;
    return answer.positions[1];
end $$;

-- Delete at most `at_most` answers of requests recorded before `before`, oldest first; a day is always kept. Returns
-- how many.
create function eventlog.forget_requests(before timestamptz, at_most integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    forgotten integer;
begin
    delete from eventlog.idempotency
    where ctid = any (array(
        select ctid from eventlog.idempotency
        where recorded_at < least(before, now() - interval '1 day')
        order by recorded_at limit at_most
        for update skip locked));                        -- locked, so its ctid stays
    get diagnostics forgotten = row_count;
    return forgotten;
end $$;

-- Begin a new life, after the database was restored from a backup: positions go on after `past_position` (the greatest
-- one that anybody outside may have seen), every process of the old life is refused, log.restored says what happened.
-- The exclusive lock waits for the appends under way, and lets none pass the check of its incarnation meanwhile.
-- Returns the new incarnation and the position of log.restored.
create function eventlog.open_incarnation(past_position bigint, out incarnation uuid, out first_position bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    old_life  uuid;
    last_kept bigint;
    answer    eventlog.outcome;
begin
    perform pg_advisory_xact_lock(hashtextextended('eventlog', 0));
    select l.incarnation into strict old_life from eventlog.log as l;
    select coalesce(max(e.position), 0) into last_kept from eventlog.event as e;
    incarnation := uuidv7();
    first_position := greatest(last_kept, past_position,
                               (select last_value from eventlog.event_position_seq)) + 1;
    perform setval('eventlog.event_position_seq', first_position, false);
    update eventlog.log as l set incarnation = open_incarnation.incarnation, opened_at = clock_timestamp();
    select * into strict answer from eventlog.append(array[row(
        'log/' || incarnation, 'log', 'instance', 0,
        array[row(uuidv7(), 'log.restored', 1,
                  convert_to(json_build_object('previous_incarnation', old_life, 'incarnation', incarnation,
                                               'last_position', last_kept,
                                               'first_position', first_position)::text, 'UTF8'),
                  '{"actor":"operator"}', null, null)::eventlog.new_event],
        null, null, null, null, null, null, null, null, null)::eventlog.unit], incarnation);
    if answer.positions is distinct from array[first_position] then
        raise exception 'log.restored went to %, not to %', answer.positions, first_position;
    end if;
end $$;
