"""Private text of events (names, labels, messages), read from the log by position: erased there, gone here."""

from collections.abc import Sequence

import msgspec

from app.eventlog.connect import Connection
from app.eventlog.read import private_parts

Text = dict[str, str]
_TEXT = msgspec.json.Decoder(Text)


async def read_texts(connection: Connection, positions: Sequence[int | None]) -> list[Text]:
    """The private text of the event at each position; empty where there is none, or none any more."""
    wanted = [position for position in positions if position is not None]
    parts = await private_parts(connection, wanted) if wanted else {}
    return [_TEXT.decode(parts[position]) if position in parts else {} for position in positions]
