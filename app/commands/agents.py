"""The agents that a run may name: those the harness ships, or any by import path. What they can do is the harness's matter.

The list is that of the pinned Harbor 0.26.0; tests/commands/test_agents.py compares it with the harness itself.
"""

import difflib

import msgspec

from app.commands.refusals import CommandRefused, invalid
from app.domain.agents import Agent
from app.vault import NOTHING

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


SETTINGS_BYTES = 64 * 1024
"""Of an agent's settings as JSON: they are part of an event, which holds four times as much with everything else in it."""


def check(agent: Agent) -> CommandRefused | None:
    """Why this agent cannot be, if it cannot."""
    settings = msgspec.json.encode(agent.settings)
    if len(settings) > SETTINGS_BYTES:
        detail = f"agent settings have at most {SETTINGS_BYTES} bytes as JSON, and these have {len(settings)}"
        return invalid("/agent/settings", "settings_too_large", detail)
    if agent.settings and NOTHING.mask(settings) != settings:
        detail = "agent settings are shown with the run and may hold no secret; something in them looks like one"
        return invalid("/agent/settings", "secret_in_settings", detail)
    if agent.name in NAMES or agent.import_path is not None or agent.name.startswith("acp:"):
        return None
    near = difflib.get_close_matches(agent.name, NAMES, n=1)
    hint = f"did you mean {near[0]}?" if near else "GET /v1/agents lists them; one of your own is package.module:Class"
    return invalid("/agent/name", "unknown_agent", f"there is no agent of this name; {hint}")
