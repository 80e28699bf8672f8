"""Which agent a run uses, pinned: the same reference gives the same digest, whoever writes it."""

import re
from typing import Annotated, Any

import msgspec

from app import digests

Json = Any
"""Any JSON value: foreign data, handed through as it came."""

IMPORT_PATH = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
STORED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a team may call an agent that it stores. No colon: it can be no import path."""


class Agent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A harness agent by name (`oracle`) or import path (`package.module:Class`), as it shall run."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    version: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    model: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    settings: dict[str, Json] = {}
    """The agent's own options, as the harness takes them. No secrets: those are credentials."""

    @property
    def import_path(self) -> str | None:
        return self.name if IMPORT_PATH.match(self.name) else None


def agent_bytes(agent: Agent) -> bytes:
    """The agent's canonical JSON: what its digest is of, and what is stored of an agent with a name."""
    return msgspec.json.encode(agent, order="deterministic")


def agent_digest(agent: Agent) -> str:
    """sha256:<hex> over the agent's canonical JSON."""
    return digests.of(agent_bytes(agent))
