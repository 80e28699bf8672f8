"""The agents that a run may name: those that the team has stored, those that the harness ships, or any by import path. What
they can do is the harness's matter.

A stored agent is a pin: name, version, model and settings under a name that never means another. None may be called like
one of the harness, and a name that a later harness also ships goes on meaning the stored one.

The list is that of the pinned Harbor 0.26.0; tests/commands/test_agents.py compares it with the harness itself.
"""

import difflib
import re

import asyncpg
import msgspec

from app import digests, ids
from app.access.roles import Permission
from app.commands.caller import Caller, Done, Means, needs
from app.commands.handle import (
    ACQUIRE_SECONDS,
    NotWritten,
    answered,
    earlier,
    meta_of,
    request_of,
    settled,
    transaction,
    written,
)
from app.commands.refusals import CommandRefused, FieldError, Kind, invalid
from app.commands.statements import statement
from app.domain.agents import STORED_NAME, Agent, agent_bytes, agent_digest
from app.domain.events import AgentCreated
from app.domain.registry import Draft
from app.eventlog.connect import Connection
from app.eventlog.drafts import unit_of
from app.vault import NOTHING
from app.vault.names import names_a_secret

NAMES = (
    "acp",
    "aider",
    "antigravity-cli",
    "antigravity-sdk",
    "claude-code",
    "cline-cli",
    "code-puppy",
    "codex",
    "computer-1",
    "copilot-cli",
    "cortex-code",
    "cursor-cli",
    "deerflow",
    "devin",
    "dspy-rlm",
    "eve",
    "fabric",
    "fx",
    "fx-dev",
    "gemini-cli",
    "goose",
    "grok-build",
    "hermes",
    "junie",
    "kimi-cli",
    "kimi-code",
    "langgraph",
    "mcode",
    "mimo",
    "mini-swe-agent",
    "muse-code",
    "nemo-agent",
    "nop",
    "openclaw",
    "opencode",
    "opencode-v2",
    "openhands",
    "openhands-sdk",
    "oracle",
    "pi",
    "qwen-coder",
    "rovodev-cli",
    "strands",
    "swe-agent",
    "terminus-2",
    "trae-agent",
    "vibe",
)


ACP = re.compile(r"acp:.")
"""An agent of the ACP registry: `acp:<registry id>[@version]`."""

SETTINGS_BYTES = 64 * 1024
"""Of an agent's settings as JSON: they are part of an event, which holds four times as much with everything else in it."""


NEIGHBOURS = 1000
"""Stored names, the newest, among which the one is looked for that a misspelt one may have meant."""


class NewAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent to be stored."""

    name: str
    agent: Agent


class AgentNow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored agent after a command."""

    id: str
    name: str
    agent: Agent
    agent_digest: str
    created: bool
    """False: the team had this very agent under this name already."""


class Chosen(msgspec.Struct, frozen=True):
    """The agent of a run, and the stored one that it was named by."""

    agent: Agent
    id: str | None = None


@needs(Permission.RUNS_WRITE)
async def create(means: Means, caller: Caller, what: NewAgent) -> Done[AgentNow]:
    """Store an agent under a new name. The same agent under the same name is the one that is there; another one is refused."""
    request = request_of(caller, "agents.create", what)
    if (done := await earlier(means, caller, request, AgentNow)) is not None:
        return done
    if (refused := _check_name(what.name) or check(what.agent)) is not None:
        raise refused
    digest = agent_digest(what.agent)
    made = AgentNow(id=ids.new("agent"), name=what.name, agent=what.agent, agent_digest=digest, created=True)
    unit = unit_of(
        "agent",
        made.id,
        caller.team,
        0,
        (Draft(AgentCreated(agent=what.agent, agent_digest=digest), {"name": what.name}),),
        meta_of(caller, None),
        idempotency_key=request.key,
        request_hash=request.digest,
        answer=msgspec.json.encode(made) if request.key else None,
    )
    row = (made.id, caller.team, what.name, agent_bytes(what.agent), digests.bytes_of(digest), caller.actor)

    async def attempt(connection: Connection) -> Done[AgentNow]:
        if await connection.fetchval(statement("insert_agent"), *row) is None:
            there = await connection.fetchrow(statement("find_agent"), caller.team, what.name)
            assert there is not None, "stored agents are never removed"
            if there["id"] != made.id:  # else an earlier try was committed, and its answer was lost
                raise _NameTaken(there)
        return settled((await written(connection, means, (unit,)))[0], made, AgentNow)

    try:
        return await transaction(means, attempt)
    except NotWritten as error:
        return answered(error.outcomes[0], AgentNow)
    except _NameTaken as error:
        if (done := await earlier(means, caller, request, AgentNow)) is not None:
            return done  # an equal request was faster
        if error.row["digest"] != digests.bytes_of(digest):
            detail = "the team has another agent of this name, and a stored agent never changes; take a new name"
            raise CommandRefused(
                Kind.CONFLICT, "agent_name_taken", detail, errors=(FieldError("/name", "agent_name_taken", detail),)
            ) from None
        return Done(msgspec.structs.replace(made, id=error.row["id"], created=False), None)


async def choose(means: Means, caller: Caller, wanted: Agent | str) -> Chosen:
    """The agent that a run names: said outright, or by the name or id of a stored one, or by a name of the harness.

    Raises CommandRefused, which names the nearest one, for what is none of these.
    """
    if isinstance(wanted, Agent):
        agent, pointer = wanted, "/agent/name"
    else:
        async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
            row = await connection.fetchrow(statement("find_agent"), caller.team, wanted)
        if row is not None:
            return Chosen(msgspec.json.decode(row["definition"], type=Agent), row["id"])
        agent, pointer = Agent(name=wanted), "/agent"
    refused = check(agent)
    if refused is None:
        return Chosen(agent)
    if refused.code != UNKNOWN:
        raise refused
    async with means.pool.acquire(timeout=ACQUIRE_SECONDS) as connection:
        rows = await connection.fetch(statement("names_of_agents"), caller.team, NEIGHBOURS)
    raise _unknown(agent.name, pointer, tuple(row["name"] for row in rows))


def check(agent: Agent) -> CommandRefused | None:
    """Why this agent cannot be, if it cannot."""
    settings = msgspec.json.encode(agent.settings)
    if len(settings) > SETTINGS_BYTES:
        detail = f"agent settings have at most {SETTINGS_BYTES} bytes as JSON, and these have {len(settings)}"
        return invalid("/agent/settings", "settings_too_large", detail)
    if agent.settings and (NOTHING.mask(settings) != settings or names_a_secret(agent.settings)):
        detail = "agent settings are shown with the run and may hold no secret; something in them looks like one"
        return invalid("/agent/settings", "secret_in_settings", detail)
    if agent.name in NAMES or agent.import_path is not None or ACP.match(agent.name):
        return None
    return _unknown(agent.name, "/agent/name", ())


UNKNOWN = "unknown_agent"


def _unknown(name: str, pointer: str, stored: tuple[str, ...]) -> CommandRefused:
    if name in stored:
        detail = (
            f"{name} is a stored agent, which pins its version, model and settings: give the name alone"
            f' ("agent": "{name}"), or store another one'
        )
        return invalid(pointer, "agent_is_stored", detail)
    near = difflib.get_close_matches(name, (*stored, *NAMES), n=1)
    hint = f"did you mean {near[0]}?" if near else "GET /v1/agents lists them; one of your own is package.module:Class"
    return invalid(pointer, UNKNOWN, f"there is no agent of this name; {hint}")


def _check_name(name: str) -> CommandRefused | None:
    """Why an agent cannot be stored under this name, if it cannot."""
    if not STORED_NAME.fullmatch(name) or name.startswith("agt_"):
        detail = (
            "an agent's name has letters, digits, dots, dashes and underscores, 100 at most, a letter or digit first, and"
            " does not begin like an id (agt_)"
        )
        return invalid("/name", "agent_name_invalid", detail)
    if name.lower() in NAMES:
        detail = "an agent of the harness has this name; take another one, so that the name means one agent"
        return CommandRefused(
            Kind.CONFLICT, "agent_name_shipped", detail, errors=(FieldError("/name", "agent_name_shipped", detail),)
        )
    if NOTHING.mask_text(name) != name:
        return invalid("/name", "secret_in_name", "names are shown and logged, and this one looks like a secret")
    return None


class _NameTaken(Exception):
    """The team has an agent of this name."""

    def __init__(self, row: asyncpg.Record) -> None:
        super().__init__()
        self.row = row
