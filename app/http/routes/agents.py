"""The agents that a run may name: stored by the team, or shipped by the harness."""

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from app.access import Permission
from app.boot import House
from app.commands import agents as commands
from app.commands.caller import Caller, permission_of
from app.commands.refusals import CommandRefused, Kind, not_found
from app.domain.agents import Agent as DomainAgent
from app.domain.agents import Json
from app.http import answers, shapes
from app.http.access import needs
from app.http.given import Given
from app.http.reading import DEFAULT_SIZE, PageSize, PageToken, size_of
from app.http.writing import answered
from app.queries import agents

READ = Permission.TEAM_READ


class AgentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An agent of the harness by name, or one's own as `package.module:Class`."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    version: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    model: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    settings: dict[str, Json] = {}
    """The agent's own options. They are shown with the run: no secrets."""

    def pinned(self) -> DomainAgent:
        return msgspec.convert(self, DomainAgent, from_attributes=True)


class NewAgent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An agent to be stored. Neither the name nor what it means changes any more."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    """What runs call it by: letters, digits, dots, dashes and underscores; no name of the harness's own."""
    agent: AgentRef


@get("/v1/agents", opt=needs(READ), tags=["agents"], operation_id="listAgents")
async def list_agents(
    house: Given[House],
    caller: Given[Caller],
    page_size: PageSize = DEFAULT_SIZE,
    page_token: PageToken = None,
) -> answers.Agents:
    """The agents that the team has stored, newest first; and in `harness`, on every page, the names of those that the
    harness ships. One of your own is named `package.module:Class`."""
    page = await agents.page(house.pool, caller.team, page_size=size_of(page_size), page_token=page_token)
    items = tuple(shapes.shape(answers.StoredAgent, row) for row in page.items)
    return answers.Agents(items=items, next_page_token=page.next_page_token, harness=commands.NAMES)


@get("/v1/agents/{agent:str}", opt=needs(READ), tags=["agents"], operation_id="getAgent")
async def get_agent(house: Given[House], caller: Given[Caller], agent: FromPath[str]) -> answers.StoredAgent:
    """A stored agent by its name or its id."""
    found = await agents.get(house.pool, caller.team, agent)
    if found is None and agent in commands.NAMES:
        detail = f"{agent} is an agent of the harness: it can be run by this name, and nothing is stored of it"
        raise CommandRefused(Kind.NOT_FOUND, "not_found", detail)
    if found is None:
        raise not_found("agent")
    return shapes.shape(answers.StoredAgent, found)


@post("/v1/agents", opt=needs(permission_of(commands.create)), tags=["agents"], operation_id="createAgent")
async def create_agent(
    house: Given[House], caller: Given[Caller], data: JSONBody[NewAgent]
) -> Response[commands.AgentNow]:
    """Store an agent under a new name: 201. The same agent under the same name is the one that is there: 200; another
    one: 409. It never changes: a new version of it is a new name."""
    what = commands.NewAgent(name=data.name, agent=data.agent.pinned())
    done = await commands.create(house, caller, what)
    status = 201 if done.result.created else 200
    return answered(done, done.result, house.incarnation, status=status, location=f"/v1/agents/{done.result.id}")


HANDLERS = (list_agents, get_agent, create_agent)
