-- eventlog.append: the one function that writes the log. It locks, decides and writes a whole group of units.
--
-- The hash. Every field is preceded by its length (4 bytes, big-endian); numbers, ids and times are in network format
-- (time: microseconds since 2000-01-01 UTC). An absent previous hash or private part counts as empty. The same in
-- Python: app/eventlog/chain.py; both are held together by golden vectors (tests/eventlog/vectors.json).
create function eventlog.frame(field bytea) returns bytea language sql immutable parallel safe
return int4send(octet_length(field)) || field;

create function eventlog.link(last_hash bytea, head bytea, body bytea) returns bytea language sql immutable
return sha256(eventlog.frame(coalesce(last_hash, head)) || body);

create aggregate eventlog.chain(head bytea, body bytea) (sfunc = eventlog.link, stype = bytea);

create type eventlog.new_event as (
    event_id uuid, type text, schema_version smallint, data bytea, meta bytea, private bytea, salt bytea);
create type eventlog.new_reservation as (scope text, key text);
create type eventlog.new_work as (
    id text, kind text, priority smallint, due_at timestamptz, owner text, cancel boolean);
create type eventlog.new_timer as (key text, due_at timestamptz);

create type eventlog.unit as (
    stream text, category text, team text, expected_version integer,
    events eventlog.new_event[],
    reservations eventlog.new_reservation[], releases eventlog.new_reservation[],
    idempotency_key text, request_hash bytea, answer bytea,
    work_id text, lease_epoch bigint,
    work eventlog.new_work[],
    timers eventlog.new_timer[]);

create type eventlog.outcome as (
    refusal text,                                        -- null: accepted
    repeated boolean,                                    -- accepted by an earlier try
    positions bigint[], head_hash bytea,                 -- of an accepted unit
    actual_version integer,                              -- before the unit; 0: no such stream
    holder text,                                         -- of a reservation that was taken
    answer bytea, answer_position bigint);               -- of a request that was answered before

-- append(units, incarnation) -> one outcome a unit, in the order of the units.
--
-- Lock:   the life of the log, shared; then one advisory lock for each stream, idempotency key, reservation and work
--         id, in numeric order. A name that has no row yet is locked too, so nothing is written before everything is
--         known; and since nothing else locks or writes these tables, no two groups wait for each other in a circle.
-- Decide: in a new statement, hence with a new snapshot (READ COMMITTED), which sees all that the locks waited for.
-- Write:  the accepted units, in that same statement. A refused unit leaves nothing.
--
-- A unit whose first event is already there was written by an earlier try: it is accepted again, with its positions.
-- Units of one call must not share a stream, key, reservation or work id: the call raises (the caller then sends them
-- one by one). Work that is not named by the lease guard can be created or told to cancel, nothing else. A release of
-- a name that the stream does not hold does nothing.
-- At most one call a transaction, as its last statement: its locks last until the commit. No NOTIFY in here: from the
-- NOTIFY to the end of its commit a transaction holds a lock of the whole cluster, so all writers would flush one after
-- the other. The appender rings after. Plans are generic and never read a table whole, also while it is still small.
create function eventlog.append(units eventlog.unit[], incarnation uuid default null)
returns setof eventlog.outcome
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    keys     bigint[];
    shared   boolean;
    outcomes eventlog.outcome[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'append needs READ COMMITTED' using errcode = 'invalid_transaction_state';
    end if;
    if exists (select from unnest(units) where (cardinality(events) > 0) is not true) then
        raise exception 'a unit needs events' using errcode = 'check_violation';
    end if;
    if exists (select from unnest(units) as u, unnest(u.releases) as l, unnest(u.reservations) as r
               where l.scope = r.scope and l.key = r.key) then
        raise exception 'a unit reserves and releases one name' using errcode = 'check_violation';
    end if;

    perform pg_advisory_xact_lock_shared(hashtextextended('eventlog', 0));
    if not exists (select from eventlog.log where incarnation = coalesce(append.incarnation, incarnation)) then
        raise exception 'the log has another incarnation' using errcode = 'SEA01';
    end if;

    select array_agg(distinct key order by key), count(*) > count(distinct key) into keys, shared
    from (select distinct unit, hashtextextended(name, kind) as key
          from (select ordinality as unit, 1 as kind, stream as name from unnest(units) with ordinality
                union all
                select ordinality, 2, octet_length(team) || ' ' || team || idempotency_key
                from unnest(units) with ordinality where idempotency_key is not null
                union all
                select u.ordinality, 3, octet_length(r.scope) || ' ' || r.scope || r.key
                from unnest(units) with ordinality as u, unnest(u.reservations || u.releases) as r
                union all
                select ordinality, 4, work_id from unnest(units) with ordinality where work_id is not null
                union all
                select u.ordinality, 4, w.id from unnest(units) with ordinality as u, unnest(u.work) as w
               ) as named
         ) as k;
    if shared then
        raise exception 'two units of one call share a stream, key, reservation or work id'
            using errcode = 'cardinality_violation';
    end if;
    perform pg_advisory_xact_lock(key) from unnest(keys) as key;

    with unit as materialized (
        select * from unnest(units) with ordinality
    ), verdict as materialized (
        select u.ordinality, s.head_hash as head, coalesce(s.version, 0) as actual_version, taken.holder,
               i.answer, i.position as answer_position, earlier.positions, earlier.head as earlier_head,
               case when earlier.positions is not null                                    then 'repeated'
                    when i.request_hash = u.request_hash                                  then 'idempotency_replay'
                    when i.request_hash is not null                                       then 'idempotency_mismatch'
                    when u.work_id is not null
                         and w.lease_epoch is distinct from u.lease_epoch                 then 'stale_lease'
                    when coalesce(s.version, 0) <> u.expected_version                     then 'wrong_version'
                    when s.team <> u.team or w.team <> u.team                             then 'wrong_team'
                    when taken.holder is not null                                         then 'reservation_taken'
               end as refusal
        from unit as u
        left join eventlog.stream as s on s.id = u.stream
        left join eventlog.idempotency as i on i.team = u.team and i.key = u.idempotency_key
        left join eventlog.work as w on w.id = u.work_id
        left join lateral (
            select r.holder
            from unnest(u.reservations) as n
            join eventlog.reservation as r on r.scope = n.scope and r.key = n.key
            where r.holder <> u.stream
            limit 1) as taken on true
        left join lateral (
            select array_agg(e.position order by e.version) as positions,
                   (array_agg(e.hash order by e.version desc))[1] as head
            from eventlog.event as e
            where s.version > u.expected_version and e.stream = u.stream
              and e.version > u.expected_version and e.version <= u.expected_version + cardinality(u.events)
            having (array_agg(e.event_id order by e.version))[1] = u.events[1].event_id
            ) as earlier on true
    ), accepted as materialized (
        select u.*, coalesce(v.head, '') as head
        from unit as u join verdict as v using (ordinality)
        where v.refusal is null
    ), fresh as materialized (
        select a.ordinality, a.stream, a.category, a.team, v.version, e.event_id, e.type, e.schema_version,
               t.recorded_at, e.data, e.meta, e.private, e.salt, p.private_hash,
               v.version = a.expected_version + cardinality(a.events) as is_last,
               eventlog.chain(a.head, b.body) over (partition by a.ordinality order by e.ordinality
                                                    rows unbounded preceding) as hash
        from (select clock_timestamp() as recorded_at) as t
        cross join accepted as a
        cross join lateral unnest(a.events) with ordinality as e
        cross join lateral (select a.expected_version + e.ordinality::integer as version) as v
        cross join lateral (select sha256(e.salt || e.private) as private_hash) as p
        cross join lateral (select
            eventlog.frame(convert_to(a.stream, 'UTF8'))
            || eventlog.frame(int4send(v.version))
            || eventlog.frame(uuid_send(e.event_id))
            || eventlog.frame(convert_to(e.type, 'UTF8'))
            || eventlog.frame(int2send(e.schema_version))
            || eventlog.frame(convert_to(a.team, 'UTF8'))
            || eventlog.frame(timestamptz_send(t.recorded_at))
            || eventlog.frame(e.data)
            || eventlog.frame(e.meta)
            || eventlog.frame(coalesce(p.private_hash, '')) as body) as b
    ), event_written as (
        insert into eventlog.event (stream, version, event_id, type, schema_version, team, recorded_at,
                                    data, meta, private, salt, private_hash, hash)
        select stream, version, event_id, type, schema_version, team, recorded_at,
               data, meta, private, salt, private_hash, hash
        from fresh order by ordinality, version
        returning stream, version, position
    ), stream_written as (
        insert into eventlog.stream (id, category, team, version, head_hash)
        select stream, category, team, version, hash from fresh where is_last
        on conflict (id) do update set version = excluded.version, head_hash = excluded.head_hash
    ), written as materialized (
        select stream, array_agg(position order by version) as positions, max(position) as last_position
        from event_written group by stream
    ), reservation_written as (
        insert into eventlog.reservation (scope, key, holder)
        select r.scope, r.key, a.stream from accepted as a, unnest(a.reservations) as r
        on conflict do nothing                           -- held by this very stream already
    ), reservation_released as (
        delete from eventlog.reservation as r
        using accepted as a, unnest(a.releases) as l
        where r.scope = l.scope and r.key = l.key and r.holder = a.stream
    ), idempotency_written as (
        insert into eventlog.idempotency (team, key, request_hash, answer, position, recorded_at)
        select a.team, a.idempotency_key, a.request_hash, a.answer, w.last_position, clock_timestamp()
        from accepted as a join written as w using (stream)
        where a.idempotency_key is not null
    ), work_written as (
        insert into eventlog.work as w (id, kind, team, priority, due_at, cancel)
        select n.id, n.kind, a.team, n.priority, n.due_at, n.cancel
        from accepted as a, unnest(a.work) with ordinality as n
        where n.id is distinct from a.work_id
        order by a.ordinality, n.ordinality              -- seq is drawn in this order
        on conflict (id) do update set cancel = true
        where excluded.cancel and not w.cancel and w.team = excluded.team
    ), lease_written as (
        update eventlog.work as w
        set priority = n.priority, due_at = n.due_at, owner = n.owner, cancel = w.cancel or n.cancel,
            lease_epoch = w.lease_epoch + (n.owner is distinct from w.owner)::integer
        from accepted as a, unnest(a.work) as n
        where n.id = a.work_id and w.id = a.work_id
    ), timer_written as (
        insert into eventlog.timer (stream, key, team, due_at)
        select a.stream, t.key, a.team, t.due_at from accepted as a, unnest(a.timers) as t
        where t.due_at is not null
        on conflict (stream, key) do update set due_at = excluded.due_at
    ), timer_called_off as (
        delete from eventlog.timer as t
        using accepted as a, unnest(a.timers) as n
        where t.stream = a.stream and t.key = n.key and n.due_at is null
    )
    select array_agg(row(nullif(v.refusal, 'repeated'), v.positions is not null, coalesce(w.positions, v.positions),
                         coalesce(f.hash, v.earlier_head), v.actual_version,
                         case when v.refusal = 'reservation_taken' then v.holder end,
                         case when v.refusal = 'idempotency_replay' then v.answer end,
                         case when v.refusal = 'idempotency_replay' then v.answer_position end)::eventlog.outcome
                     order by v.ordinality)
    into outcomes
    from verdict as v
    join unit as u using (ordinality)
    left join written as w on w.stream = u.stream
    left join fresh as f on f.ordinality = v.ordinality and f.is_last;

    return query select * from unnest(outcomes);
end $$;
