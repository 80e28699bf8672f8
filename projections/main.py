"""The process of the projector: one feed, all views."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from app.boot import NotConfigured
from app.bus.connection import Bus
from app.bus.feed import Feed
from app.eventlog.model import Recorded
from app.settings import Settings
from projections.projector import ROLE, Projector

BATCH = 1_000
"""Events written in one transaction at most: enough to be fast, few enough to hold no lock for long."""


async def main(settings: Settings, stop: asyncio.Event) -> None:
    if not settings.database_url:
        raise NotConfigured(NotConfigured.__doc__)
    async with Bus(settings.nats_url) as bus:

        @contextlib.asynccontextmanager
        async def events(after: int, ending: asyncio.Event) -> AsyncGenerator[AsyncIterator[list[Recorded]]]:
            feed = Feed(settings.database_url, bus, "projector", after, batch_limit=BATCH, role=ROLE)
            async with feed:
                yield feed.batches(ending)

        await Projector(settings.database_url, events).run(stop)
