"""Agents that a team has stored, newest first. Read from the registry itself, so they never lag behind a write."""

import datetime

import msgspec

from app import ids
from app.domain.agents import Agent
from app.eventlog.connect import Pool
from app.queries.pages import SIZE, PageTokenInvalid
from app.queries.rows import to
from app.queries.statements import statement


class StoredAgent(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    agent: Agent
    agent_digest: str
    created_by: str
    created_at: datetime.datetime


class AgentPage(msgspec.Struct, frozen=True):
    items: tuple[StoredAgent, ...]
    next_page_token: str | None
    """None on the last page."""


async def page(pool: Pool, team: str, *, page_size: int = SIZE, page_token: str | None = None) -> AgentPage:
    """The token is the last id of the page before. Raises PageTokenInvalid."""
    if page_token is not None and not ids.is_id("agent", page_token):
        raise PageTokenInvalid(PageTokenInvalid.__doc__)
    records = await pool.fetch(statement("page_agents"), team, page_token, page_size + 1)
    items = tuple(to(StoredAgent, record) for record in records[:page_size])
    return AgentPage(items, items[-1].id if len(records) > page_size else None)


async def get(pool: Pool, team: str, reference: str) -> StoredAgent | None:
    """A stored agent by its id or its name."""
    record = await pool.fetchrow(statement("get_agent"), team, reference)
    return None if record is None else to(StoredAgent, record)
