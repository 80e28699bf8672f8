"""The write function: what an accepted unit leaves, what each refusal says, and that a refused one leaves nothing."""

import asyncio
import datetime

import asyncpg
import pytest
from msgspec.structs import replace

from app.eventlog.append import Appender
from app.eventlog.incarnation import open_incarnation
from app.eventlog.model import (
    LIMIT_BYTES,
    LogUnavailable,
    NewReservation,
    NewTimer,
    NewWork,
    Refusal,
    Unit,
    UnitInvalid,
    WrongIncarnation,
)
from app.eventlog.read import private_of, private_parts, read_after, read_positions, read_stream
from app.eventlog.tail import settle
from tests.eventlog.samples import event, opened, rows, unit, write

DUE = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
NAME = NewReservation("task", "hello")


async def test_an_accepted_unit_is_read_back_as_it_was_given(database: str) -> None:
    one, two = unit("trl_1", count=2, private=b'{"text":"free"}'), unit("trl_2")
    async with opened(database) as connection:
        first, second = await write(connection, one, two)
        stream = await read_stream(connection, "trl_1", private=True)
        assert [(e.version, e.event_id, e.data, e.meta, e.private, e.category) for e in stream] == [
            (n + 1, e.event_id, e.data, e.meta, e.private, "trial") for n, e in enumerate(one.events)
        ]
        assert tuple(e.position for e in stream) == first.positions
        assert stream[-1].hash == first.head_hash
        assert first.positions < second.positions
        assert [e.version for e in await read_stream(connection, "trl_1", 1)] == [2]
        assert await read_stream(connection, "trl_none") == []
        by_position = await read_positions(connection, [second.positions[0], first.positions[0], 999])
        assert [e.stream for e in by_position] == ["trl_1", "trl_2"]
        assert by_position[0].private is None, "the private part is read only where it is asked for"
        assert await private_of(connection, first.positions[0]) == b'{"text":"free"}'
        assert await private_of(connection, second.positions[0]) is None
        assert set(await private_parts(connection, [*first.positions, *second.positions])) == set(first.positions)
        await settle(connection)
        assert [e.position for e in await read_after(connection, first.positions[0], 1)] == [first.positions[1]]


async def test_a_unit_sent_again_is_recognised_by_its_own_events(database: str) -> None:
    sent = unit("trl_1", count=3, reservations=(NAME,), idempotency_key="k", request_hash=b"h", answer=b"a")
    async with opened(database) as connection:
        [done] = await write(connection, sent)
        await write(connection, unit("trl_1", 3))
        [again] = await write(connection, sent)
    assert again == replace(done, repeated=True, actual_version=4)
    assert len(await rows(database, "select from eventlog.event")) == 4


async def test_each_refusal_says_what_its_caller_needs(database: str) -> None:
    async with opened(database) as connection:
        work = NewWork("trl_1", "trial", due_at=DUE)
        key = {"idempotency_key": "k", "request_hash": b"h", "answer": b"made"}
        [made] = await write(connection, unit("trl_1", reservations=(NAME,), work=(work,), **key))

        async def refused(sent: Unit) -> tuple[Refusal | None, int | None, str | None, bytes | None, int | None]:
            [o] = await write(connection, sent)
            assert not o.accepted
            assert o.positions == ()
            return o.refusal, o.actual_version, o.holder, o.answer, o.answer_position

        position = made.positions[0]
        assert await refused(unit("trl_9", **key)) == (Refusal.IDEMPOTENCY_REPLAY, 0, None, b"made", position)
        other = key | {"request_hash": b"other"}
        assert (await refused(unit("trl_9", **other)))[0] is Refusal.IDEMPOTENCY_MISMATCH
        assert (await refused(unit("trl_9", work_id="trl_1", lease_epoch=7)))[0] is Refusal.STALE_LEASE
        assert (await refused(unit("trl_9", work_id="no such work", lease_epoch=0)))[0] is Refusal.STALE_LEASE
        assert (await refused(unit("trl_1", 2)))[:2] == (Refusal.WRONG_VERSION, 1)
        assert (await refused(unit("trl_1", 0)))[:2] == (Refusal.WRONG_VERSION, 1), (
            "other events than those that are there"
        )
        assert (await refused(unit("trl_9", 1)))[:2] == (Refusal.WRONG_VERSION, 0)
        assert (await refused(unit("trl_1", 1, team="tem_b")))[0] is Refusal.WRONG_TEAM
        assert (await refused(unit("trl_9", team="tem_b", work_id="trl_1", lease_epoch=0)))[0] is Refusal.WRONG_TEAM
        assert (await refused(unit("trl_9", reservations=(NAME,))))[:3] == (Refusal.RESERVATION_TAKEN, 0, "trl_1")
        # A key belongs to its team.
        assert (await write(connection, unit("trl_b", team="tem_b", **key)))[0].accepted


async def test_precedence_of_refusals(database: str) -> None:
    everything_wrong = unit(
        "trl_1",
        5,
        team="tem_b",
        reservations=(NAME,),
        idempotency_key="k",
        request_hash=b"x",
        work_id="w",
        lease_epoch=9,
    )
    async with opened(database) as connection:
        await write(connection, unit("holder", reservations=(NAME,), work=(NewWork("w", "trial"),)), unit("trl_1"))
        await write(connection, unit("b", team="tem_b", idempotency_key="k", request_hash=b"h"))
        mended = {
            Refusal.IDEMPOTENCY_REPLAY: {"request_hash": b"h"},
            Refusal.IDEMPOTENCY_MISMATCH: {"request_hash": b"x"},
            Refusal.STALE_LEASE: {"idempotency_key": None, "request_hash": None},
            Refusal.WRONG_VERSION: {"lease_epoch": 0},
            Refusal.WRONG_TEAM: {"expected_version": 1},
            Refusal.RESERVATION_TAKEN: {"team": "tem_a"},
        }
        for expected, change in mended.items():
            everything_wrong = replace(everything_wrong, **change)
            [outcome] = await write(connection, everything_wrong)
            assert outcome.refusal is expected
        assert list(mended) == list(Refusal), "the order of the enum is the precedence"


async def test_a_refused_unit_leaves_nothing(database: str) -> None:
    async with opened(database) as connection:
        refused = unit(
            "trl_1",
            3,
            reservations=(NAME,),
            idempotency_key="k",
            request_hash=b"h",
            work=(NewWork("w", "trial"),),
            timers=(NewTimer("t", DUE),),
        )
        bystander, outcome = await write(connection, unit("trl_2"), refused)
        assert bystander.accepted
        assert outcome.refusal is Refusal.WRONG_VERSION
    left = "select (select count(*) from eventlog.{}) as n"
    for table in ("reservation", "idempotency", "work", "timer"):
        assert (await rows(database, left.format(table)))[0]["n"] == 0, table
    assert [r["id"] for r in await rows(database, "select id from eventlog.stream")] == ["trl_2"]


async def test_a_name_is_held_until_its_holder_releases_it(database: str) -> None:
    async with opened(database) as connection:
        assert (await write(connection, unit("a", reservations=(NAME,))))[0].accepted
        assert (await write(connection, unit("a", 1, reservations=(NAME,))))[0].accepted, "held by itself already"
        assert (await write(connection, unit("b", releases=(NAME,))))[0].accepted, "not its own: does nothing"
        assert (await write(connection, unit("c", reservations=(NAME,))))[0].holder == "a"
        assert (await write(connection, unit("a", 2, releases=(NAME,))))[0].accepted
        assert (await write(connection, unit("c", reservations=(NAME,))))[0].accepted


async def test_names_that_only_look_alike_do_not_collide(database: str) -> None:
    async with opened(database) as connection:
        outcomes = await write(
            connection,
            unit("a", reservations=(NewReservation("x y", "z"),), idempotency_key="2 k", request_hash=b"1"),
            unit(
                "b", reservations=(NewReservation("x", "y z"),), idempotency_key="k", request_hash=b"2", team="tem_a 2"
            ),
        )
    assert [o.refusal for o in outcomes] == [None, None]


async def test_only_one_of_many_requests_with_one_key_is_done(database: str) -> None:
    async with Appender(database) as one, Appender(database) as two:
        outcomes = await asyncio.gather(
            *(
                appender.append(
                    unit(f"run_{n}{i}", idempotency_key="k", request_hash=b"h", answer=f"run_{n}{i}".encode())
                )
                for n in range(10)
                for i, appender in enumerate((one, two))
            )
        )
    [winner] = [o for o in outcomes if o.accepted]
    losers = [o for o in outcomes if not o.accepted]
    assert len(losers) == 19
    [stored] = await rows(database, "select answer from eventlog.idempotency")
    assert {(o.refusal, o.answer, o.answer_position) for o in losers} == {
        (Refusal.IDEMPOTENCY_REPLAY, stored["answer"], winner.positions[-1])
    }


async def test_only_one_of_many_claims_wins_and_the_epoch_moves_with_the_owner(database: str) -> None:
    async with Appender(database) as one, Appender(database) as two:
        await one.append(unit("trl_1", work=(NewWork("trl_1", "trial", due_at=DUE),)))
        claims = await asyncio.gather(
            *(
                appender.append(
                    unit(
                        f"exe_{n}{i}",
                        work_id="trl_1",
                        lease_epoch=0,
                        work=(NewWork("trl_1", "trial", owner=f"wrk_{n}{i}"),),
                    )
                )
                for n in range(5)
                for i, appender in enumerate((one, two))
            )
        )
        assert sorted(str(o.refusal) for o in claims) == ["None"] + ["stale_lease"] * 9
        [work] = await rows(database, "select owner, lease_epoch, cancel, due_at from eventlog.work")
        assert (work["lease_epoch"], work["cancel"], work["due_at"]) == (1, False, None)

        # Told to cancel by somebody without the guard: nothing else of the row changes, and the lease goes on.
        stranger = NewWork("trl_1", "other", priority=9, due_at=DUE, cancel=True)
        assert (await one.append(unit("b", team="tem_b", work=(stranger,)))).accepted
        assert not (await rows(database, "select cancel from eventlog.work"))[0]["cancel"], "another team's work"
        assert (await one.append(unit("cancel", work=(stranger,)))).accepted
        [row] = await rows(database, "select kind, owner, lease_epoch, cancel, priority, due_at from eventlog.work")
        assert tuple(row) == ("trial", work["owner"], 1, True, 0, None)

        kept = NewWork("trl_1", "trial", owner=work["owner"])
        assert (await one.append(unit("same", work_id="trl_1", lease_epoch=1, work=(kept,)))).accepted
        ended = NewWork("trl_1", "trial", due_at=DUE, priority=3)
        assert (await one.append(unit("end", work_id="trl_1", lease_epoch=1, work=(ended,)))).accepted, (
            "same owner: same epoch"
        )
        assert (await one.append(unit("late", work_id="trl_1", lease_epoch=1))).refusal is Refusal.STALE_LEASE
    [row] = await rows(database, "select owner, lease_epoch, cancel, priority, due_at from eventlog.work")
    assert tuple(row) == (None, 2, True, 3, DUE), "a request to cancel stays"


async def test_work_is_numbered_in_order_of_creation(database: str) -> None:
    async with opened(database) as connection:
        for batch in range(3):
            units = [unit(f"s{batch}{n}", work=(NewWork(f"w{9 - batch}{9 - n}", "trial"),)) for n in range(10)]
            await write(connection, *units)
    found = [r["id"] for r in await rows(database, "select id from eventlog.work order by seq")]
    assert found == [f"w{9 - batch}{9 - n}" for batch in range(3) for n in range(10)]


async def test_a_timer_is_set_moved_and_called_off_by_its_own_stream(database: str) -> None:
    later = DUE + datetime.timedelta(days=1)
    async with opened(database) as connection:
        await write(connection, unit("a", timers=(NewTimer("end", DUE), NewTimer("warn", DUE))))
        await write(connection, unit("b", timers=(NewTimer("end", later),)))
        await write(connection, unit("a", 1, timers=(NewTimer("end", later), NewTimer("warn", None))))
    found = await rows(database, "select stream, key, due_at from eventlog.timer order by stream")
    assert [tuple(r) for r in found] == [("a", "end", later), ("b", "end", later)]


async def test_a_unit_that_breaks_a_rule_of_the_database_harms_no_stranger(database: str) -> None:
    async with opened(database, None) as owner:
        await owner.execute("alter table eventlog.event add check (type <> 'poison')")
    poison = unit("bad", events=(event("poison"),))
    async with Appender(database) as appender:
        answers = await asyncio.gather(
            *(
                appender.append(u)
                for u in [*(unit(f"a{n}") for n in range(30)), poison, *(unit(f"b{n}") for n in range(30))]
            ),
            return_exceptions=True,
        )
    failed = answers.pop(30)
    assert isinstance(failed, asyncpg.CheckViolationError)
    assert all(not isinstance(o, BaseException) and o.accepted for o in answers)
    assert len(await rows(database, "select from eventlog.event")) == 60


async def test_a_refused_unit_of_a_group_harms_no_stranger(database: str) -> None:
    async with Appender(database) as appender:
        await appender.append(unit("warm"))
        outcomes = await asyncio.gather(*(appender.append(unit(f"a{n}", n % 2)) for n in range(200)))
        assert appender.groups <= 3, "all of them went as a group"
    assert [o.refusal for o in outcomes] == [None, Refusal.WRONG_VERSION] * 100
    assert len(await rows(database, "select from eventlog.event")) == 101


async def test_units_of_one_stream_are_written_in_the_order_in_which_they_were_given(database: str) -> None:
    async with Appender(database) as appender:
        outcomes = await asyncio.gather(*(appender.append(unit("hot", n)) for n in range(50)))
    assert all(o.accepted for o in outcomes)
    positions = [o.positions[0] for o in outcomes]
    assert positions == sorted(positions)


async def test_another_incarnation_is_refused_for_good(database: str) -> None:
    async with Appender(database) as old, opened(database, None) as owner:
        assert (await old.append(unit("a"))).accepted
        restored = await open_incarnation(owner, 5000)
        assert restored.first_position == 5001
        for _ in range(2):
            with pytest.raises(WrongIncarnation):
                await old.append(unit("b"))
        with pytest.raises(WrongIncarnation):
            await write(owner, unit("b"), incarnation=old.incarnation)
        async with Appender(database, restored.incarnation) as new:
            assert (await new.append(unit("b"))).positions == (5002,)
    [said] = await rows(database, "select stream, position, team from eventlog.event where type = 'log.restored'")
    assert tuple(said) == (f"log/{restored.incarnation}", 5001, "instance")


async def test_a_new_incarnation_waits_for_appends_under_way_and_refuses_those_that_come_meanwhile(
    database: str,
) -> None:
    async with opened(database) as one, opened(database) as two, opened(database, None) as owner:
        old = (await one.fetchrow("select incarnation from eventlog.log"))["incarnation"]
        transaction = one.transaction()
        await transaction.start()
        [under_way] = await write(one, unit("a"), incarnation=old)
        restore = asyncio.create_task(open_incarnation(owner, 0))
        await _until(database, "select from pg_locks where locktype = 'advisory' and not granted")
        late = asyncio.create_task(write(two, unit("b"), incarnation=old))
        await _until(database, "select 1 from pg_locks where locktype = 'advisory' and not granted having count(*) = 2")
        assert not restore.done()
        await transaction.commit()
        restored = await restore
        assert restored.first_position > under_way.positions[0]
        with pytest.raises(WrongIncarnation):
            await late


async def test_an_append_needs_read_committed(database: str) -> None:
    async with opened(database) as connection:
        with pytest.raises(asyncpg.InvalidTransactionStateError):
            async with connection.transaction(isolation="repeatable_read"):
                await write(connection, unit("a"))


async def test_a_direct_append_is_part_of_its_callers_transaction(database: str) -> None:
    async with opened(database) as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert (await write(connection, unit("a"), unit("b")))[1].accepted
        await transaction.rollback()
        assert await read_stream(connection, "a") == []
        with pytest.raises(asyncpg.CardinalityViolationError):
            await write(connection, unit("a"), unit("a"))


async def test_a_closed_appender_has_written_what_it_was_given(database: str) -> None:
    async with Appender(database) as appender:
        waiting = [asyncio.create_task(appender.append(unit(f"a{n}"))) for n in range(20)]
        await asyncio.sleep(0)
    assert all(outcome.accepted for outcome in await asyncio.gather(*waiting))
    with pytest.raises(LogUnavailable):
        await appender.append(unit("late"))


async def test_a_full_queue_makes_callers_wait(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.eventlog.append.QUEUE_UNITS", 4)
    async with Appender(database) as appender:
        outcomes = await asyncio.gather(*(appender.append(unit(f"a{n}")) for n in range(20)))
        assert all(outcome.accepted for outcome in outcomes)
        assert appender.groups >= 5, "never more than four units at a time"


async def test_an_append_is_durable_and_read_committed_whatever_the_servers_defaults(database: str) -> None:
    async with opened(database, None) as owner:
        name = await owner.fetchval("select current_database()")
        await owner.execute(f"alter database {name} set default_transaction_isolation = 'serializable'")
        await owner.execute(f"alter database {name} set synchronous_commit = off")
    async with opened(database) as connection:
        assert (await write(connection, unit("a")))[0].accepted
        assert await connection.fetchval("show synchronous_commit") == "on"


async def test_a_cancelled_caller_stops_nobody(database: str) -> None:
    async with Appender(database) as appender:
        tasks = [asyncio.create_task(appender.append(unit(f"a{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(o, asyncio.CancelledError) for o in outcomes[::2])
    assert all(not isinstance(o, BaseException) and o.accepted for o in outcomes[1::2])


GOOD = unit("trl_1", private=b"{}")


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("stream", replace(GOOD, stream="")),
        ("stream", replace(GOOD, stream="a\0")),
        ("stream", replace(GOOD, stream="\ud800")),
        ("stream", replace(GOOD, stream="a" * 513)),
        ("category", replace(GOOD, category="")),
        ("team", replace(GOOD, team="")),
        ("expected_version", replace(GOOD, expected_version=-1)),
        ("expected_version", replace(GOOD, expected_version=2**31)),
        ("events", replace(GOOD, events=())),
        ("events", replace(GOOD, events=(GOOD.events[0],) * 2)),
        ("events[0].type", replace(GOOD, events=(replace(event(), type=""),))),
        ("events[0].schema_version", replace(GOOD, events=(replace(event(), schema_version=0),))),
        ("events[0].salt", replace(GOOD, events=(replace(event(), private=b"{}"),))),
        ("events[0]", replace(GOOD, events=(event(data=b"x" * LIMIT_BYTES),))),
        ("request_hash", replace(GOOD, idempotency_key="k")),
        ("answer", replace(GOOD, answer=b"a")),
        ("lease_epoch", replace(GOOD, work_id="w")),
        ("reservations", replace(GOOD, reservations=(NAME, NAME))),
        ("releases", replace(GOOD, reservations=(NAME,), releases=(NAME,))),
        ("work", replace(GOOD, work=(NewWork("w", "trial"), NewWork("w", "trial")))),
        ("work[0].owner", replace(GOOD, work=(NewWork("w", "trial", owner="thief"),))),
        ("work[0].priority", replace(GOOD, work=(NewWork("w", "trial", priority=40_000),))),
        ("work[0].due_at", replace(GOOD, work=(NewWork("w", "trial", due_at=DUE.replace(tzinfo=None)),))),
        ("timers", replace(GOOD, timers=(NewTimer("t", DUE), NewTimer("t", None)))),
        ("timers[0].due_at", replace(GOOD, timers=(NewTimer("t", DUE.replace(tzinfo=None)),))),
    ],
)
async def test_a_unit_that_can_never_be_written_is_refused_by_its_field(field: str, wrong: Unit) -> None:
    appender = Appender("postgresql://nobody.invalid/none")
    with pytest.raises(UnitInvalid, match="^" + field.replace("[", r"\[").replace("]", r"\]") + ": ") as caught:
        await appender.append(wrong)
    assert caught.value.field == field


async def test_the_database_itself_refuses_what_validation_would(database: str) -> None:
    """For a caller that goes around this room's door."""
    async with opened(database) as connection:
        for wrong in ("events := null", "events := array[]::eventlog.new_event[]"):
            with pytest.raises(asyncpg.CheckViolationError):
                await connection.execute(f"""
                    do $$ declare u eventlog.unit; begin
                        u.stream := 'a'; u.category := 'trial'; u.team := 't'; u.expected_version := 0; u.{wrong};
                        perform eventlog.append(array[u]);
                    end $$""")


async def _until(url: str, query: str) -> None:
    """Wait until the query finds something."""
    async with opened(url, None) as owner:
        while not await owner.fetch(query):
            await asyncio.sleep(0.005)
