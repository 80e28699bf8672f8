"""What a borrowed connection is when it comes back, since nothing is sent to reset it."""

import asyncpg

from app.eventlog.connect import open_pool


async def test_a_transaction_left_open_is_rolled_back_before_the_next_loan(database: str) -> None:
    async with await open_pool(database, role=None, max_size=1) as pool:
        async with pool.acquire() as connection:
            await connection.execute("begin")
            await connection.execute("create table never (n int)")
        async with pool.acquire() as connection:
            assert not connection.is_in_transaction()
            assert await connection.fetchval("select to_regclass('never')") is None


async def test_giving_a_connection_back_costs_no_statement(database: str) -> None:
    async with await open_pool(database, role=None, max_size=1) as pool:
        pid = await pool.fetchval("select pg_backend_pid()")
        watching = await asyncpg.connect(database)
        try:
            last = await watching.fetchval("select query from pg_stat_activity where pid = $1", pid)
        finally:
            await watching.close()
        assert last == "select pg_backend_pid()"


async def test_settings_of_the_role_outlive_a_loan(database: str) -> None:
    async with await open_pool(database, max_size=1) as pool:
        for _ in range(2):
            async with pool.acquire() as connection:
                assert await connection.fetchval("select current_user") == "seatrial_app"
                assert await connection.fetchval("show synchronous_commit") == "on"
