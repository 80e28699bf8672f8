"""A NATS of one's own, for tests that stop it or look at the whole of it."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.bus.connection import Bus
from app.local.nats import Nats

_numbers = itertools.count(1)


@pytest.fixture
def own_nats(memory_folder: Path) -> Iterator[Nats]:
    server = Nats(memory_folder / f"bus-{next(_numbers)}")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def bus(nats_clean: str) -> AsyncIterator[Bus]:
    async with Bus(nats_clean) as bus:
        await bus.ready()
        yield bus
