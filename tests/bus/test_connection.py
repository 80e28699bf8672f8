"""The bus comes up without NATS, comes back after it, and so do its subscriptions."""

import asyncio

import pytest
from nats.aio.msg import Msg

from app.bus.cancels import cancels, send_cancel
from app.bus.connection import Bus, NotConnected
from app.local.nats import Nats
from tests.bus.rig import until


async def test_it_starts_without_nats_and_a_subscription_waits_for_it(own_nats: Nats) -> None:
    own_nats.stop()
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    async with Bus(own_nats.url) as bus:
        await bus.listen("somewhere.*", hear)
        assert not bus.connected
        with pytest.raises(NotConnected):
            _ = bus.js
        own_nats.start()
        await bus.ready()
        await bus.nc.publish("somewhere.here", b"1")
        await until(lambda: heard == [b"1"])


async def test_subscriptions_survive_a_restart_and_generations_count(own_nats: Nats) -> None:
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    async with Bus(own_nats.url) as bus:
        await bus.ready()
        listening = await bus.listen("somewhere.*", hear)
        first = bus.generation
        own_nats.stop()
        await until(lambda: not bus.connected)
        own_nats.start()
        await bus.ready()
        await until(lambda: bus.generation == first + 1)
        await bus.nc.publish("somewhere.here", b"1")
        await until(lambda: heard == [b"1"])
        await listening.stop()
        await bus.nc.publish("somewhere.here", b"2")
        await bus.nc.flush()
        await asyncio.sleep(0.05)
        assert heard == [b"1"]


async def test_a_client_that_gives_up_for_good_is_replaced(own_nats: Nats) -> None:
    """nats-py closes itself on some errors of the server, whatever it was told about reconnecting."""
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    async with Bus(own_nats.url) as bus:
        await bus.ready()
        await bus.listen("somewhere.*", hear)
        old = bus.nc
        await old.close()
        await until(lambda: bus.connected and bus.nc is not old)
        await bus.nc.publish("somewhere.here", b"1")
        await until(lambda: heard == [b"1"])


async def test_a_wrong_token_is_tried_again_and_never_told(own_nats: Nats, capfd: pytest.CaptureFixture[str]) -> None:
    wrong = f"nats://wrong-secret@127.0.0.1:{own_nats.port}"
    async with Bus(wrong) as bus:
        await asyncio.sleep(0.6)
        assert not bus.connected
    assert "wrong-secret" not in "".join(capfd.readouterr())


async def test_no_url_is_a_nats_that_is_always_away() -> None:
    async with Bus("") as bus:
        assert not bus.connected
        await send_cancel(bus, "trl_1")


async def test_a_cancel_reaches_whoever_listens(bus: Bus) -> None:
    told: list[str] = []
    async with cancels(bus, told.append):
        await send_cancel(bus, "trl_1")
        await until(lambda: told == ["trl_1"])
    await send_cancel(bus, "trl_2")
    await bus.nc.flush()
    assert told == ["trl_1"]
