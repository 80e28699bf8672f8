"""Server-sent events as a client reads them."""

import json
from collections.abc import Iterable, Iterator
from typing import Any


class Event:
    """One server-sent event."""

    def __init__(self, name: str, identifier: str | None, data: str) -> None:
        self.name, self.id = name, identifier
        self.data: Any = json.loads(data) if data else None


def read_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Parse the stream (WHATWG HTML, section 9.2.6)."""
    name, identifier, data = "message", None, list[str]()
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data or name != "message":
                yield Event(name, identifier, "\n".join(data))
            name, identifier, data = "message", None, []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                name = value
            case "id":
                identifier = value
            case "data":
                data.append(value)
            case _:
                pass
