"""An effect that failed too often waits for an operator, and its stream's later events wait behind it."""

import asyncio

from app.bus.dead_letters import BEHIND, dead_letters, park, parked_streams, replay, skip, take
from tests.eventlog.samples import opened


async def test_a_letter_is_parked_replayed_and_gone_when_its_effect_commits(database: str) -> None:
    async with opened(database) as connection:
        await park(connection, "webhook", 7, "run_1", "http.503", 5)
        [letter] = await dead_letters(connection, "webhook")
        assert (letter.position, letter.stream, letter.error_code, letter.attempts) == (7, "run_1", "http.503", 5)
        assert await take(connection, "webhook") is None, "nobody has asked"
        assert await replay(connection, "webhook", 7) == 1
        assert await replay(connection, "webhook", 7) == 0, "asked already"
        transaction = connection.transaction()
        await transaction.start()
        assert await take(connection, "webhook") is not None
        await transaction.rollback()  # the effect failed
        async with connection.transaction():
            taken = await take(connection, "webhook")
            assert taken is not None
            assert taken.attempts == 5
        assert await dead_letters(connection) == []


async def test_one_that_fails_again_counts_on_and_waits_again(database: str) -> None:
    async with opened(database) as connection:
        await park(connection, "webhook", 7, "run_1", "http.503", 5)
        await replay(connection, "webhook")
        await park(connection, "webhook", 7, "run_1", "http.410", 1)
        [letter] = await dead_letters(connection)
        assert (letter.error_code, letter.attempts, letter.replay_at) == ("http.410", 6, None)


async def test_the_order_of_a_stream_is_kept_and_other_streams_go_on(database: str) -> None:
    async with opened(database) as connection, opened(database) as other:
        await park(connection, "webhook", 7, "run_1", "http.503", 5)
        assert await parked_streams(connection, "webhook", ["run_1", "run_2"]) == {"run_1"}
        assert await parked_streams(connection, "mail", ["run_1"]) == frozenset()
        await park(connection, "webhook", 9, "run_1", BEHIND, 1)
        await park(connection, "webhook", 8, "run_2", "http.503", 5)
        await replay(connection, "webhook", 9)
        assert await take(connection, "webhook") is None, "7 has to go first"
        await replay(connection, "webhook")
        async with connection.transaction(), other.transaction():
            first, second = await take(connection, "webhook"), await take(other, "webhook")
            assert first is not None
            assert second is not None
            assert {first.position, second.position} == {7, 8}
            async with opened(database) as third:
                assert await take(third, "webhook") is None, "9 waits for 7, which is under way"
        last = await take(connection, "webhook")
        assert last is not None
        assert last.position == 9


async def test_skipping_waits_for_a_try_that_is_under_way(database: str) -> None:
    async with opened(database) as connection, opened(database) as operator:
        await park(connection, "webhook", 7, "run_1", "http.503", 5)
        await park(connection, "mail", 7, "run_1", "smtp", 5)
        await replay(connection, "webhook")
        async with connection.transaction():
            assert await take(connection, "webhook") is not None
            skipping = asyncio.create_task(skip(operator, "webhook"))
            await asyncio.sleep(0.05)
            assert not skipping.done()
        assert await skipping == 0, "it was done"
        assert await skip(operator, "mail", 7) == 1
        assert await dead_letters(operator) == []


async def test_pages_go_on_after_the_last_letter(database: str) -> None:
    async with opened(database) as connection:
        for handler in ("a", "b"):
            for position in (3, 1, 2):
                await park(connection, handler, position, f"run_{position}", "x", 1)
        first = await dead_letters(connection, limit=4)
        rest = await dead_letters(connection, after=(first[-1].handler, first[-1].position))
        assert [(one.handler, one.position) for one in first + rest] == [
            (handler, position) for handler in ("a", "b") for position in (1, 2, 3)
        ]
        assert [one.position for one in await dead_letters(connection, "b", after=("b", 1))] == [2, 3]
