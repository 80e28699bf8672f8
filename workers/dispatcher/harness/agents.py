"""The agents that Harbor 0.26.0 ships, by name, and which of them need the model library in the harness process."""

from workers.dispatcher.harness.model import AgentSpec

NAMES: frozenset[str] = frozenset(
    (
        "acp", "aider", "antigravity-cli", "antigravity-sdk", "claude-code", "cline-cli", "code-puppy", "codex",
        "computer-1", "copilot-cli", "cortex-code", "cursor-cli", "deerflow", "devin", "dspy-rlm", "eve", "fabric",
        "fx", "fx-dev", "gemini-cli", "goose", "grok-build", "hermes", "junie", "kimi-cli", "kimi-code", "langgraph",
        "mcode", "mimo", "mini-swe-agent", "muse-code", "nemo-agent", "nop", "openclaw", "opencode", "opencode-v2",
        "openhands", "openhands-sdk", "oracle", "pi", "qwen-coder", "rovodev-cli", "strands", "swe-agent", "terminus-2",
        "trae-agent", "vibe",
    )
)  # fmt: skip
"""Also accepted: `acp:<registry id>[@version]`, and any `module:Class`."""

CALLING_MODELS_HERE: frozenset[str] = frozenset(("computer-1", "dspy-rlm", "terminus-2"))
"""Agents whose model calls leave from the harness process. All others but oracle and nop call from the sandbox."""


def is_known(name: str) -> bool:
    return name in NAMES or (name.startswith("acp:") and len(name) > 4)


def needs_litellm(agent: AgentSpec) -> bool:
    """Whether a child of this agent will import litellm (3.4 s and 165 MB when it was not preloaded; harness.md).

    Harbor imports it to split a model name, whatever the agent.
    """
    if agent.import_path is not None or agent.model is not None:
        return True
    return (agent.name or "oracle") in CALLING_MODELS_HERE
