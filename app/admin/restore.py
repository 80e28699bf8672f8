"""`seatrial admin restore`: begin a new life of the log (app/bus/restore.py) and say what was done."""

from typing import TextIO

import asyncpg
import msgspec

from app.bus.restore import Restoration, StreamUnknown, restore
from app.eventlog.connect import LOST

RESTORED, NOT_RESTORED = 0, 2
"""Exit codes."""


async def run_restore(
    database_url: str, nats_url: str, *, past_position: int = 0, as_json: bool = False, out: TextIO
) -> int:
    """Restore and say what was done; an exit code."""
    try:
        done = await restore(database_url, nats_url, past_position=past_position)
    except (StreamUnknown, asyncpg.PostgresError, *LOST) as error:
        out.write(f"not restored: {error}\n")
        return NOT_RESTORED
    out.write(msgspec.json.encode(done).decode() + "\n" if as_json else text(done))
    return RESTORED


def text(done: Restoration) -> str:
    """What was done, for a person."""
    stream = "was not asked" if done.stream_sequence is None else f"ended at position {done.stream_position or 0}"
    return (
        f"incarnation  {done.incarnation} (before: {done.previous_incarnation})\n"
        f"position     {done.first_position} is the first of the new life\n"
        f"stream       {stream}\n"
        "Restart every process of this installation: those of the old life are refused.\n"
    )
