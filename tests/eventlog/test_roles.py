"""Who may do what: the application writes the log through eventlog.append alone, and nobody changes an event."""

import asyncpg
import pytest

from app.eventlog.connect import open_pool
from app.eventlog.erase import erase
from tests.eventlog.samples import opened, unit, write

EVENT_TABLES = ("event", "stream", "reservation", "idempotency", "work", "timer", "log")
DENIED = asyncpg.InsufficientPrivilegeError


@pytest.mark.parametrize("role", ["seatrial_app", "seatrial_projector", "seatrial_eraser"])
async def test_no_role_writes_the_log_directly(database: str, role: str) -> None:
    async with opened(database) as app, opened(database, role) as connection:
        await write(app, unit("a", private=b"{}"))
        for table in EVENT_TABLES:
            for act in (
                f"insert into eventlog.{table} default values",
                f"delete from eventlog.{table}",
                f"truncate eventlog.{table}",
            ):
                with pytest.raises(DENIED):
                    await connection.execute(act)
        for act in (
            "update eventlog.event set private = null, salt = null",
            "update eventlog.stream set version = 1",
            "update eventlog.work set owner = 'thief'",
            "update eventlog.log set incarnation = uuidv7()",
            "select nextval('eventlog.event_position_seq')",
            "select setval('eventlog.event_position_seq', 1)",
            "select eventlog.open_incarnation(5)",
            "alter table eventlog.event disable trigger all",
            "drop trigger event_is_immutable on eventlog.event",
            "set session_replication_role = replica",
            "create table eventlog.mine ()",
        ):
            with pytest.raises(DENIED):
                await connection.execute(act)


async def test_each_role_has_its_own_door(database: str) -> None:
    async with opened(database) as app, opened(database, "seatrial_projector") as projector:
        async with opened(database, "seatrial_eraser") as eraser:
            [done] = await write(app, unit("a", private=b"{}"))
            with pytest.raises(DENIED):
                await erase(app, done.positions[0], "ticket")
            with pytest.raises(DENIED):
                await erase(projector, done.positions[0], "ticket")
            for other in (projector, eraser):
                with pytest.raises(DENIED):
                    await other.execute("select eventlog.append(null)")
            with pytest.raises(DENIED):
                await projector.execute("select private from eventlog.event")
            assert await erase(eraser, done.positions[0], "ticket") == 2


async def test_the_application_keeps_its_own_books(database: str) -> None:
    async with opened(database) as app:
        await app.execute("insert into eventlog.worker (id, kind, slots) values ('wrk_1', 'dispatcher', 4)")
        await app.execute("update eventlog.worker set beat = beat + 1, beat_at = now() where id = 'wrk_1'")
        await app.execute("insert into eventlog.checkpoint select 'foreman', 5, incarnation from eventlog.log")
        await app.execute("update eventlog.checkpoint set position = 6 where name = 'foreman'")
        await app.execute("insert into eventlog.dead_letter values ('publisher', 5, 'a', 'timeout', 3)")
        await app.execute("delete from eventlog.dead_letter")
        await app.execute("delete from eventlog.worker")


async def test_nobody_changes_an_event_not_even_its_owner(database: str) -> None:
    async with opened(database, None) as owner:
        await write(owner, unit("a", private=b"{}"))
        for act in (
            "update eventlog.event set data = '[]'",
            "update eventlog.event set private = null",
            "update eventlog.event set private = 'x', salt = 'y'",
            "update eventlog.event set private = null, salt = null, meta = '[]'",
            "delete from eventlog.event",
            "truncate eventlog.event",
        ):
            with pytest.raises((asyncpg.ReadOnlySQLTransactionError, asyncpg.CheckViolationError)):
                await owner.execute(act)


async def test_a_connection_cannot_leave_its_role_by_resetting_it(database: str) -> None:
    pool = await open_pool(database, min_size=1, max_size=1)
    async with pool:
        for _ in range(2):
            async with pool.acquire() as connection:
                await connection.execute("reset all")
                await connection.execute("reset role")
                assert await connection.fetchval("select current_user") == "seatrial_app"
                assert await connection.fetchval("show idle_in_transaction_session_timeout") == "30s"
