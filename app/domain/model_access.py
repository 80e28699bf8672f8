"""What the harness's agents need to reach a model, and whether a run can give it: no key can reach an agent yet.

There are no credentials in this version, and an agent's settings may hold no secret. An agent that cannot work without a key
would be installed for minutes and then fail. A run of it is accepted with a warning, and its trials end as agent.key_missing
before a sandbox is made. What an agent needs is Harbor's own word (its preflight); tests/domain/test_model_access.py holds the
table against the pinned Harbor.
"""

import enum

from app.domain.agents import Agent


class Needs(enum.StrEnum):
    """What an agent must be given to work at all."""

    NOTHING = "nothing"
    KEY = "key"
    """A key or an account of its own, whatever else is set."""
    KEY_OR_SERVER = "key_or_server"
    """The key of a model provider, or a model server that asks for none."""
    UNKNOWN = "unknown"
    """It depends on what it is set to run: a graph, a project, an agent of one's own."""


OF_THEIR_OWN = frozenset({"nop", "oracle"})
"""They call no model."""

ALWAYS = frozenset(
    {
        "antigravity-cli",
        "antigravity-sdk",
        "cline-cli",
        "code-puppy",
        "cortex-code",
        "cursor-cli",
        "devin",
        "goose",
        "grok-build",
        "hermes",
        "junie",
        "mcode",
        "mini-swe-agent",
        "muse-code",
        "openhands-sdk",
        "rovodev-cli",
        "trae-agent",
        "vibe",
    }
)
UNLESS_A_SERVER_ASKS_FOR_NONE = frozenset(
    {
        "aider",
        "claude-code",
        "codex",
        "computer-1",
        "copilot-cli",
        "deerflow",
        "dspy-rlm",
        "fx",
        "fx-dev",
        "gemini-cli",
        "kimi-cli",
        "kimi-code",
        "nemo-agent",
        "openclaw",
        "openhands",
        "qwen-coder",
        "strands",
        "swe-agent",
        "terminus-2",
    }
)
KEY_MISSING = "agent.key_missing"
SERVER_SETTINGS = ("base_url", "api_base")
"""How an agent's settings name a model server; the second is terminus-2's older word."""
KEYLESS_PROVIDERS = frozenset({"hosted_vllm", "llamafile", "lm_studio", "ollama", "ollama_chat"})
"""What stands before the slash of a model that one serves oneself."""


def needs(name: str) -> Needs:
    """Of an agent by its name; of an import path and of an `acp:` name nothing is known."""
    if name in OF_THEIR_OWN:
        return Needs.NOTHING
    if name in ALWAYS:
        return Needs.KEY
    return Needs.KEY_OR_SERVER if name in UNLESS_A_SERVER_ASKS_FOR_NONE else Needs.UNKNOWN


def lacks_key(agent: Agent) -> str | None:
    """Why this agent certainly cannot work, and what can; None when it may work."""
    needed = needs(agent.name)
    if needed in (Needs.NOTHING, Needs.UNKNOWN):
        return None
    if needed is Needs.KEY_OR_SERVER and _has_server(agent):
        return None
    hint = (
        "" if needed is Needs.KEY else f", or {agent.name} with a model server that asks for no key (setting base_url)"
    )
    return (
        f"{agent.name} needs a key for its model, and this version cannot give it one: there are no credentials yet. "
        f"What works today: oracle, nop, an agent of your own (package.module:Class){hint}"
    )


def warning(agent: Agent) -> str | None:
    """What whoever starts a run of this agent should know before anything is built; None when there is nothing to say."""
    lacking = lacks_key(agent)
    return None if lacking is None else f"{lacking}. Its trials will end as {KEY_MISSING}"


def _has_server(agent: Agent) -> bool:
    provider = (agent.model or "").partition("/")[0]
    return provider in KEYLESS_PROVIDERS or any(agent.settings.get(name) for name in SERVER_SETTINGS)
