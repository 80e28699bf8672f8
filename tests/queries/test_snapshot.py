"""One moment of several views, and waiting for a view."""

import asyncio
import random

import pytest

from app.eventlog.connect import open_pool
from app.queries.snapshot import snapshot, view_position, wait_for
from tests.projections.histories import history
from tests.projections.projecting import project, projector, write, writer


async def test_waiting_for_a_view_ends_when_all_have_reached_the_position(database: str) -> None:
    async with writer(database) as log, projector(database) as connection, await open_pool(database) as pool:
        last = await write(log, history(random.Random(1), 50).units)
        assert await view_position(connection, ["run", "trial"]) == 0
        assert not await wait_for(pool, ["run", "trial"], last, 0.05)
        waiting = asyncio.create_task(wait_for(pool, ["run", "trial"], last, 20))
        assert not await project(connection)
        assert await waiting
        assert not await wait_for(pool, ["run"], last + 1, 0)


async def test_a_snapshot_takes_known_views_only_and_leaves_the_connection_clean(database: str) -> None:
    async with await open_pool(database, max_size=1) as pool:
        with pytest.raises(ValueError, match="no such views"):
            async with snapshot(pool, ["run; drop table views.run"]):
                pass
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                async with snapshot(pool, ["run"]):
                    raise ZeroDivisionError
        async with pool.acquire() as connection:
            assert not connection.is_in_transaction()
