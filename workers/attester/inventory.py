"""What is inside an image, found once per image digest: read from its layers, kept as an object, named by a row."""

import msgspec

from app.boot import House
from app.images.packages import Inventory
from app.objects.port import ObjectMissing
from workers.builder.build.port import Backend
from workers.statements import statement

FORMAT = 1
"""Of the stored inventory; another format's is made again."""
DECODER = msgspec.json.Decoder(Inventory)


class Inventories:
    def __init__(self, house: House, backend: Backend) -> None:
        self.house, self.backend = house, backend

    async def of(self, reference: str, digest: str) -> Inventory:
        """The packages of the image. Raises BuildFailure when it has to be read and the engine cannot."""
        row = await self.house.pool.fetchrow(statement("read_inventory"), digest, FORMAT)
        if row is not None:
            try:
                return DECODER.decode(b"".join([chunk async for chunk in self.house.objects.open(row["object_key"])]))
            except (ObjectMissing, msgspec.MsgspecError):
                pass  # lost or of another make: read the image again
        found = await self.backend.inventory(reference)
        stored = await self.house.objects.put_blob(msgspec.json.encode(found, order="deterministic"))
        await self.house.pool.execute(statement("write_inventory"), digest, FORMAT, stored.key)
        return found
