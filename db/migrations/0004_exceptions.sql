-- The three exceptions to "append only", each a function of its own with a privilege of its own (0006): a private part
-- is erased, an old answer is forgotten, the log begins a new life after a restore.

-- Take the private part out of one event, for ever, and say so in the log. The chain still verifies: it covers
-- private_hash, which stays. The stream erasure/POSITION can be opened once, so a second call changes nothing.
-- Old row versions live until VACUUM, and in WAL and backups: erased is not gone at once.
-- Returns the position of event.erased; null: no such event, no private part, or erased before.
create function eventlog.erase(at_position bigint, reason text) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    target eventlog.event;
    answer eventlog.outcome;
begin
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
                  '{}', null, null)::eventlog.new_event],
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
    with old as (
        select team, key from eventlog.idempotency
        where recorded_at < least(before, now() - interval '1 day')
        order by recorded_at limit at_most
        for update skip locked
    )
    delete from eventlog.idempotency as i using old where i.team = old.team and i.key = old.key;
    get diagnostics forgotten = row_count;
    return forgotten;
end $$;

-- Begin a new life, after the database was restored from a backup: positions go on after `past_position` (the greatest
-- one that anybody outside may have seen), every process of the old life is refused, log.restored says what happened.
-- The exclusive lock waits for the appends under way and lets none pass the check of its incarnation meanwhile.
create function eventlog.open_incarnation(past_position bigint, reason text)
returns table (incarnation uuid, "position" bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    old_life  uuid;
    new_life  uuid := uuidv7();
    last_kept bigint;
    answer    eventlog.outcome;
begin
    perform pg_advisory_xact_lock(hashtextextended('eventlog', 0));
    select l.incarnation into strict old_life from eventlog.log as l;
    select coalesce(max(e.position), 0) into last_kept from eventlog.event as e;
    perform setval(pg_get_serial_sequence('eventlog.event', 'position'), greatest(last_kept, past_position, 1));
    update eventlog.log set incarnation = new_life, opened_at = clock_timestamp();
    select * into strict answer from eventlog.append(array[row(
        'log/' || new_life, 'log', '', 0,
        array[row(uuidv7(), 'log.restored', 1,
                  convert_to(json_build_object('incarnation', new_life, 'previous_incarnation', old_life,
                                               'last_kept_position', last_kept, 'past_position', past_position,
                                               'reason', reason)::text, 'UTF8'),
                  '{}', null, null)::eventlog.new_event],
        null, null, null, null, null, null, null, null, null)::eventlog.unit], new_life);
    return query select new_life, answer.positions[1];
end $$;
