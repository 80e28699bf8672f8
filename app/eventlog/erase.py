"""Takes the private part of an event away, for ever; the log says so, and an audit tells it from tampering."""

import re

from app.eventlog.connect import Connection
from app.eventlog.statements import statement

REASON = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


class ReasonInvalid(ValueError):
    """reason: a code of letters, digits, dots, dashes and underscores, at most 64 characters, such as a ticket number.

    It is published with the event, so it may not be free text.
    """


async def erase(connection: Connection, position: int, reason: str) -> int | None:
    """The position of event.erased; None when there is no such event, no private part, or it was erased before.

    The connection needs the role seatrial_eraser. Old row versions live until VACUUM, and in WAL and backups.
    """
    if not REASON.match(reason):
        raise ReasonInvalid(ReasonInvalid.__doc__)
    return await connection.fetchval(statement("erase_private"), position, reason)
