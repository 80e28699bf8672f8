"""How far a follower is: one row in Postgres, moved in the transaction of its effect, so that each event has it once."""

from app.bus.statements import statement
from app.eventlog.connect import Connection


async def load_checkpoint(connection: Connection, name: str) -> int:
    """The position after which `name` goes on; 0 at the very beginning."""
    return await connection.fetchval(statement("read_checkpoint"), name) or 0


async def save_checkpoint(connection: Connection, name: str, expected: int, position: int) -> bool:
    """Move the checkpoint from `expected` to `position`, in the caller's transaction.

    False: somebody else has moved it. Roll back, load it again and go on from there.
    """
    return await connection.fetchval(statement("save_checkpoint"), name, expected, position) is True
