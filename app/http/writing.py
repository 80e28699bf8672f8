"""The answer to a command: its result, where it stands in the log, and whether it is an earlier answer again."""

import uuid
from typing import Any

from litestar import Response

from app.bus import cursor
from app.commands.caller import Done
from app.http.reading import POSITION

REPLAYED = "Idempotent-Replayed"


def answered[T](
    done: Done[Any], body: T, incarnation: uuid.UUID, *, status: int, location: str | None = None
) -> Response[T]:
    headers: dict[str, str] = {}
    if done.position is not None:
        headers[POSITION] = cursor.write(incarnation, done.position)
    if done.replayed:
        headers[REPLAYED] = "true"
    if location is not None:
        headers["Location"] = location
    return Response(body, status_code=status, headers=headers)
