"""The agents that a run may name are those of the harness."""

import subprocess
from pathlib import Path

import pytest

from app import ids
from app.boot import House
from app.commands import agents
from app.commands.caller import Caller
from app.commands.refusals import Kind
from app.domain import run
from app.domain.agents import Agent
from app.domain.registry import Meta
from app.eventlog.drafts import unit_of
from workers.dispatcher.harness import locate

LIST = "from harbor.models.agent.name import AgentName; print('\\n'.join(one.value for one in AgentName))"
NOT_REGISTERED = {"terminus", "terminus-1"}
"""Harbor lists these names and cannot make such agents."""


@pytest.mark.harness
def test_the_list_is_the_harnesss_own(harness: Path) -> None:
    built = locate.ensure(harness)
    said = subprocess.run([built.python, "-c", LIST], capture_output=True, text=True, check=True)
    assert set(agents.NAMES) == set(said.stdout.split()) - NOT_REGISTERED
    assert list(agents.NAMES) == sorted(agents.NAMES)


@pytest.mark.parametrize("name", ["oracle", "my_package.agents:Mine", "acp:registry-id@1.0"])
def test_agents_by_name_by_import_path_and_by_registry_are_taken(name: str) -> None:
    assert agents.check(Agent(name=name)) is None


@pytest.mark.parametrize("name", ["orcle", "mine", "package.module", "a b:C", "../x:Y"])
def test_others_are_refused(name: str) -> None:
    refused = agents.check(Agent(name=name))
    assert refused is not None
    assert refused.code == "unknown_agent"


async def test_settings_fit_into_an_event_or_are_refused_by_name(house: House, caller: Caller) -> None:
    """The log takes 256 KiB; what it would not take is refused at the door, and what is let in is taken."""
    most = agents.SETTINGS_BYTES - len('{"a":""}')
    taken = Agent(name="oracle", settings={"a": "\\" * (most // 2)})
    labels = {"\x01" * 60 + str(n): '"' * 255 for n in range(32)}
    assert agents.check(taken) is None
    refused = agents.check(Agent(name="oracle", settings={"a": "x" * (most + 1)}))
    assert refused is not None
    assert (refused.kind, refused.code, refused.errors[0].pointer) == (
        Kind.INVALID,
        "settings_too_large",
        "/agent/settings",
    )
    drafts = run.decide(
        None,
        run.Request(
            number=1, agent=taken, trials=1, roster="sha256:a", evaluations=1, name="\x01" * 200, labels=labels
        ),
    )
    assert isinstance(drafts, tuple)
    unit = unit_of("run", ids.new("run"), caller.team, 0, drafts, Meta(actor="key_a"))
    assert (await house.appender.append(unit)).accepted
