"""Which of the agents that Harbor 0.26.0 ships need the model library in the harness process."""

from workers.dispatcher.harness.model import AgentSpec

CALLING_MODELS_HERE: frozenset[str] = frozenset(("computer-1", "dspy-rlm", "terminus-2"))
"""Agents whose model calls leave from the harness process. All others but oracle and nop call from the sandbox."""


def needs_litellm(agent: AgentSpec) -> bool:
    """Whether a child of this agent will import litellm (3.4 s and 165 MB when it was not preloaded; harness.md).

    Harbor imports it to split a model name, whatever the agent.
    """
    if agent.import_path is not None or agent.model is not None:
        return True
    return (agent.name or "oracle") in CALLING_MODELS_HERE
