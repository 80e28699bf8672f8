"""What is inside an image, found once per image digest: read from its layers, kept as an object, named by a row.

The builder writes it right after the build, so that every archive of the image lists the same, whatever becomes of the
image. One whose records cannot be read has the inventory `null`, so that it is not read again for each evaluation.
"""

import msgspec

from app.boot import House
from app.images.packages import Inventory
from app.objects.port import ObjectCorrupt, ObjectMissing
from workers.builder.build.port import Backend, ImageMissing, ImageUnreadable
from workers.statements import statement

FORMAT = 1
"""Of the stored inventory; another format's is made again."""
DECODER: msgspec.json.Decoder[Inventory | None] = msgspec.json.Decoder(Inventory | None)


class Known(msgspec.Struct, frozen=True):
    """What the row of an image leads to."""

    key: str
    inventory: Inventory | None = None
    lost: bool = False
    """The object is gone, or holds something else: to be made again."""


class Inventories:
    def __init__(self, house: House, backend: Backend) -> None:
        self.house, self.backend = house, backend

    async def record(self, reference: str, digest: str) -> Inventory | None:
        """Of an image that was just built; None when its records cannot be read. Raises BuildFailure, also ImageMissing."""
        known = await self._known(digest)
        if known is not None and known.inventory is not None:
            return known.inventory
        return await self._remember(digest, known, await self._read(reference))

    async def of(self, reference: str, digest: str) -> Inventory | None:
        """The packages of the image; None when it could not be read. Raises BuildFailure when the engine is away."""
        known = await self._known(digest)
        if known is not None and not known.lost:
            return known.inventory
        try:
            found = await self._read(reference)
        except ImageMissing:
            found = None
        return await self._remember(digest, known, found)

    async def _read(self, reference: str) -> Inventory | None:
        try:
            return await self.backend.inventory(reference)
        except ImageUnreadable:
            return None

    async def _known(self, digest: str) -> Known | None:
        key = await self.house.pool.fetchval(statement("read_inventory"), digest, FORMAT)
        if key is None:
            return None
        try:
            content = b"".join([chunk async for chunk in self.house.objects.open(key)])
            return Known(key, DECODER.decode(content))
        except (ObjectMissing, ObjectCorrupt, msgspec.MsgspecError):
            return Known(key, lost=True)

    async def _remember(self, digest: str, known: Known | None, found: Inventory | None) -> Inventory | None:
        """Keep what was found, unless another process kept something meanwhile: then that is what counts."""
        stored = await self.house.objects.put_blob(msgspec.json.encode(found, order="deterministic"))
        seen = None if known is None else known.key
        if await self.house.pool.fetchval(statement("write_inventory"), digest, FORMAT, stored.key, seen):
            return found
        first = await self._known(digest)
        return found if first is None or first.lost else first.inventory
