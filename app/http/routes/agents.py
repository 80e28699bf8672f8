"""The agents that a run may name."""

from litestar import get

from app.access import Permission
from app.commands import agents
from app.http import answers
from app.http.access import needs


@get("/v1/agents", opt=needs(Permission.TEAM_READ), tags=["runs"], operation_id="listAgents")
async def list_agents() -> answers.Listed[answers.AgentName]:
    """The agents of the harness. One of your own is named `package.module:Class`."""
    return answers.Listed(items=tuple(answers.AgentName(name=name) for name in agents.NAMES))


HANDLERS = (list_agents,)
