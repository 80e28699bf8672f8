"""An agent that cannot work without a key is known before anything is installed, and no other one is held back."""

import json
import subprocess
from pathlib import Path

import pytest

from app.commands import agents
from app.domain import failures, model_access
from app.domain.agents import Agent
from app.domain.model_access import Needs
from workers.dispatcher.harness import locate

PREFLIGHT = """
import json, os
from harbor.agents.factory import AgentFactory
from harbor.models.trial.config import AgentConfig

def refusal(name, model, **settings):
    try:
        AgentFactory.run_preflight(AgentConfig(name=name, model_name=model, kwargs=settings))
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
    return ""

server = {"base_url": "http://localhost:1/v1"}
print(json.dumps({
    name: {
        "provider": [refusal(name, None), refusal(name, "anthropic/claude"), refusal(name, "openai/gpt")],
        "server": [refusal(name, model, **server) for model in ("openai/own", "hosted_vllm/own")],
    }
    for name in AgentFactory.registered_names()
}))
"""
"""What Harbor itself says before a run, with no key anywhere."""
NO_KEY, NO_SERVER = "MissingModelCredentialError", "does not support base_url"


@pytest.mark.harness
def test_the_table_is_what_harbor_says_before_a_run(harness: Path, tmp_path: Path) -> None:
    built = locate.ensure(harness)
    asked = subprocess.run(
        [built.python, "-c", PREFLIGHT],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True,
        text=True,
        check=True,
    )
    said: dict[str, dict[str, list[str]]] = json.loads(asked.stdout.splitlines()[-1])
    assert set(said) == set(agents.NAMES)
    for name, answers in said.items():
        wants_key = any(NO_KEY in one for one in answers["provider"])
        takes_server = any(one == "" for one in answers["server"])
        match model_access.needs(name):
            case Needs.KEY:
                assert wants_key, name
                assert not takes_server, name
            case Needs.KEY_OR_SERVER:
                assert takes_server, name
            case Needs.NOTHING | Needs.UNKNOWN:
                assert not wants_key, name


def test_every_name_of_the_table_is_an_agent() -> None:
    named = [*model_access.OF_THEIR_OWN, *model_access.ALWAYS, *model_access.UNLESS_A_SERVER_ASKS_FOR_NONE]
    assert len(named) == len(set(named))
    assert set(named) <= set(agents.NAMES)


@pytest.mark.parametrize(
    "agent",
    [
        Agent(name="claude-code"),
        Agent(name="claude-code", model="anthropic/claude"),
        Agent(name="terminus-2", model="openai/gpt", settings={"base_url": ""}),
        Agent(name="cursor-cli", settings={"base_url": "http://localhost:1"}),
        Agent(name="goose", model="ollama/own"),
    ],
)
def test_an_agent_that_lacks_its_key_is_told_with_what_works_and_how_its_trials_end(agent: Agent) -> None:
    lacking, warning = model_access.lacks_key(agent), model_access.warning(agent)
    assert lacking is not None
    assert warning is not None
    for words in (agent.name, "no credentials", "oracle, nop", "package.module:Class"):
        assert words in lacking
    assert warning.startswith(lacking)
    assert warning.endswith(failures.failure(model_access.KEY_MISSING).code)


@pytest.mark.parametrize(
    "agent",
    [
        Agent(name="oracle"),
        Agent(name="nop", model="anything"),
        Agent(name="mine:Agent", model="openai/gpt"),
        Agent(name="acp:registry-id@1.0"),
        Agent(name="langgraph", settings={"project": "mine"}),
        Agent(name="claude-code", settings={"base_url": "http://models.example/v1"}),
        Agent(name="terminus-2", model="openai/own", settings={"api_base": "http://models.example/v1"}),
        Agent(name="aider", model="ollama_chat/own"),
    ],
)
def test_what_may_work_is_let_in(agent: Agent) -> None:
    assert model_access.lacks_key(agent) is None
    assert model_access.warning(agent) is None
