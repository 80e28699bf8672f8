"""A house on a database of its own, as a worker process opens it. NATS is there; what must not depend on it is tested without."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from app.boot import House, open_house
from app.settings import Settings

LEASE_SECONDS = 30.0
"""Long: a busy machine must not make a worker look silent. Whoever tests silence sets the time."""

Open = Callable[..., Awaitable[House]]


@pytest.fixture
def settings(database: str, nats: str, tmp_path: Path) -> Settings:
    return Settings(
        home=str(tmp_path), database_url=database, nats_url=nats, lease_seconds=LEASE_SECONDS, beat_seconds=0.1,
        drain_seconds=0.5,
    )  # fmt: skip


@pytest.fixture
async def open_another(settings: Settings) -> AsyncIterator[Open]:
    """Opens a house as another process would."""
    async with AsyncExitStack() as stack:

        async def another(**more: Any) -> House:
            return await stack.enter_async_context(open_house(settings, **more))

        yield another


@pytest.fixture
async def house(open_another: Open) -> House:
    return await open_another()
