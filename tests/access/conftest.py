"""A connection as the application has it."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from app.eventlog.connect import connect


@pytest.fixture
async def connection(database: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    opened = await connect(database)
    try:
        yield opened
    finally:
        await opened.close()
