"""A refusal is a value: a command that may not be, and why. Nothing was written."""

import msgspec


class Refused(msgspec.Struct, frozen=True):
    """What a decider answers when a command cannot be. `code` is stable, `detail` is for people and names the remedy."""

    code: str
    detail: str
    pointer: str = ""
    """JSON Pointer of the field at fault, if it is one field."""
