"""What a child may ask of its worker and tell it: one Struct each, decoded at the door.

The child runs an agent's own code, so nothing that it sends is believed before it has this shape.
"""

from typing import Annotated, Literal

import msgspec

from workers.dispatcher.harness.wire import Header
from workers.dispatcher.runtimes.port import NetworkPolicy

Parcel = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,9}\.tar\Z")]
"""The name of a file in the trial's transfer folder."""


class _Call(msgspec.Struct, frozen=True, tag_field="op"):
    id: int
    sandbox: str


class Start(_Call, frozen=True, tag="start"):
    verifier: bool
    own_image: bool
    """A verifier's sandbox that does not run in the agent's image."""
    folders: tuple[str, ...]
    environment: dict[str, str]
    network: NetworkPolicy
    looks_for: tuple[str, ...] = ()
    """Paths to look for in the fresh sandbox; the answer names those that the image has."""
    image: str | None = None
    """The one that the pack declares; only ever a verifier's."""
    workdir: str | None = None
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None


class Exec(_Call, frozen=True, tag="exec"):
    command: str
    environment: dict[str, str]
    live: bool
    """Its output is part of the trial's log."""
    cwd: str | None = None
    user: str | None = None
    timeout: float | None = None


class Put(_Call, frozen=True, tag="put"):
    folder: str
    file: Parcel


class Get(_Call, frozen=True, tag="get"):
    path: str
    file: Parcel


class Network(_Call, frozen=True, tag="network"):
    network: NetworkPolicy


class Strays(_Call, frozen=True, tag="strays"):
    pass


class Stop(_Call, frozen=True, tag="stop"):
    pass


Call = Start | Exec | Put | Get | Network | Strays | Stop


class Hello(msgspec.Struct, frozen=True, tag_field="ev", tag="hello"):
    pid: int
    """As the child sees itself, in its own namespace."""
    confined: bool
    """It is a user of its own, with its own view of the machine. Said before any code of an agent has run."""


class Hook(msgspec.Struct, frozen=True, tag_field="ev", tag="hook"):
    event: str
    step: str | None


class Verified(msgspec.Struct, frozen=True, tag_field="ev", tag="verifier"):
    exit_code: int | None
    isolation: Literal["shared", "separate"]
    strays_killed: int
    reward_file: str | None
    step: str | None


class Failed(msgspec.Struct, frozen=True, tag_field="ev", tag="failed"):
    """Harbor could not begin."""

    type: str
    message: str


class Cancelled(msgspec.Struct, frozen=True, tag_field="ev", tag="cancelled"):
    why: str


class Result(msgspec.Struct, frozen=True, tag_field="ev", tag="result"):
    """Harbor's result is in the trial's folder."""


Event = Hello | Hook | Verified | Failed | Cancelled | Result


class CallInvalid(ValueError):
    """The child asked for something that is no call."""


def decode(header: Header) -> Call:
    try:
        return msgspec.convert(header, Call)
    except msgspec.ValidationError as error:
        raise CallInvalid(str(error)) from error


def decode_event(header: Header) -> Event:
    try:
        return msgspec.convert(header, Event)
    except msgspec.ValidationError as error:
        raise CallInvalid(str(error)) from error
