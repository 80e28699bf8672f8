"""The agents that a run may name are those of the harness."""

import subprocess
from pathlib import Path

import pytest

from app.commands import agents
from app.domain.agents import Agent
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
