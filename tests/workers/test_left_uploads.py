"""Whatever moment a kill or a failing store comes at, no upload's object stays for ever."""

import asyncio
import datetime
from collections.abc import AsyncIterator

import pytest

from app import ids
from app.access import Principal, Role
from app.boot import House
from app.commands import uploads
from app.commands.caller import Caller
from app.objects import keys
from tests.workers import rig
from workers import clock
from workers.clock import Timekeeper

NOW = asyncio.Event()
NOW.set()


@pytest.fixture
async def caller(house: House) -> Caller:
    return Caller(Principal(actor=ids.new("key"), team=await rig.make_team(house), role=Role.ADMIN))


async def objects(house: House) -> set[str]:
    return {key async for key in house.objects.list("uploads/")}


async def send(house: House, caller: Caller, content: bytes) -> str:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    opened = await uploads.open_upload(house, caller)
    await uploads.receive(house, caller, opened.id, pieces())
    return opened.id


async def expire(house: House, *upload_ids: str) -> None:
    past = house.clock.now() - datetime.timedelta(hours=1)
    await house.pool.execute("update seatrial.upload set expires_at = $2 where id = any ($1)", list(upload_ids), past)


async def test_only_what_is_under_way_keeps_its_object(house: House, caller: Caller) -> None:
    expired, under_way, finalized = [await send(house, caller, name) for name in (b"a", b"b", b"c")]
    await expire(house, expired)
    # Killed between the commit of the revision and the removal of the object.
    await house.pool.execute(
        "update seatrial.upload set state = 'finalized', revision = $2 where id = $1", finalized, ids.new("revision")
    )
    # Killed between the object and its note in the row: the row says that nothing was sent.
    unnoted = (await uploads.open_upload(house, caller)).id
    await house.objects.put_new(keys.upload(unnoted), b"d")
    await expire(house, unnoted)
    # Killed, or the store failed, between forgetting the row and removing the object.
    await house.objects.put_new(keys.upload(ids.new("upload")), b"e")
    await Timekeeper(house).expire_uploads(NOW)
    assert await objects(house) == {keys.upload(under_way)}
    rows = {row["id"] for row in await house.pool.fetch("select id from seatrial.upload")}
    assert rows == {under_way, finalized}


async def test_more_than_one_batch_expires_at_once(
    house: House, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "UPLOADS", 2)
    monkeypatch.setattr(uploads, "SWEEP_OBJECTS", 2)
    sent = [await send(house, caller, bytes([n])) for n in range(5)]
    await expire(house, *sent)
    await Timekeeper(house).expire_uploads(NOW)
    assert await objects(house) == set()
