"""Reading an archived log from the middle: a file of JSON lines whose sequences grow, found by halving.

A page costs the same wherever in the log it lies: a few short reads to find where it begins, then its own bytes.
"""

import collections
import contextlib
import weakref
from collections.abc import AsyncGenerator

from app.bus.logs import LogChunk, NotALogChunk, decode
from app.objects import ObjectMissing, ObjectStore, Stored

WINDOW_BYTES = 256 * 1024
"""What is read through rather than halved."""
PROBE_BYTES = 64 * 1024
"""Where lines are longer, the search ends a little too early in the file, which costs time and nothing else."""
REMEMBERED = 10_000
"""Files a process knows; what is archived does not change, and to describe a local file is to read it."""

_KNOWN: weakref.WeakKeyDictionary[ObjectStore, collections.OrderedDict[str, Stored]] = weakref.WeakKeyDictionary()


async def described(objects: ObjectStore, key: str) -> Stored | None:
    """The archived log under this key; None when there is none yet."""
    known = _KNOWN.setdefault(objects, collections.OrderedDict())
    found = known.get(key) or await objects.stat(key)
    if found is not None:
        known[key] = found
        known.move_to_end(key)
        while len(known) > REMEMBERED:
            known.popitem(last=False)
    return found


async def chunks_after(objects: ObjectStore, kept: Stored, after: int) -> AsyncGenerator[LogChunk]:
    """The chunks with a sequence after `after`; what is no chunk is passed over. Nothing when the file is gone."""
    rest = b""
    with contextlib.suppress(ObjectMissing):
        start = await beginning(objects, kept, after)
        async with contextlib.aclosing(objects.open(kept.key, start=start)) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    with contextlib.suppress(NotALogChunk):
                        if (chunk := decode(line)).sequence > after:
                            yield chunk


async def beginning(objects: ObjectStore, kept: Stored, after: int) -> int:
    """The place of a line before which no chunk has a sequence after `after`, at most a window before the first that has.

    Raises ObjectMissing.
    """
    low, high = 0, kept.size_bytes
    while high - low > WINDOW_BYTES:
        middle = (low + high) // 2
        found = await _line_after(objects, kept.key, middle, min(high, middle + PROBE_BYTES))
        if found is None or found[1] > after:
            high = middle
        else:
            low = found[0]
    return low


async def _line_after(objects: ObjectStore, key: str, start: int, end: int) -> tuple[int, int] | None:
    """(place, sequence) of the first chunk whose line begins after `start` and is whole before `end`."""
    read = b""
    async with contextlib.aclosing(objects.open(key, start=start, end=end)) as pieces:
        async for piece in pieces:
            read += piece
    place = read.find(b"\n") + 1
    while place and (stop := read.find(b"\n", place)) >= 0:
        with contextlib.suppress(NotALogChunk):
            return start + place, decode(read[place:stop]).sequence
        place = stop + 1
    return None
