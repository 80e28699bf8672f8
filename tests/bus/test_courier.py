"""What is posted arrives as what is published, and nothing can be smuggled into it."""

import asyncio

import nats
import nats.errors
import pytest
from nats.aio.msg import Msg

from app.bus.courier import Courier
from app.local.nats import Nats


async def test_a_posted_message_arrives_as_a_published_one(nats_clean: str) -> None:
    courier, got = Courier(), asyncio.Queue[Msg]()
    await courier.connect(nats_clean)
    try:
        await courier.subscribe("letters.*", cb=got.put)
        for headers in ({"A": "1", "Nats-Msg-Id": "x y:z"}, {"Long": "v" * 3000}):
            for message in (b"", b"{}", b"\r\nHPUB", b"x" * 100_000):
                await courier.publish("letters.a", message, reply="answers.b", headers=headers)
                await courier.post("letters.a", "answers.b", headers, message)
                async with asyncio.timeout(30):
                    published, posted = await got.get(), await got.get()
                seen = (posted.subject, posted.reply, posted.headers, posted.data)
                assert seen == (published.subject, published.reply, published.headers, published.data)
                assert seen == ("letters.a", "answers.b", headers, message)
    finally:
        await courier.close()


async def test_what_would_break_the_protocol_is_refused(nats_clean: str) -> None:
    courier = Courier()
    await courier.connect(nats_clean)
    try:
        for subject in ("", "a b", "a\r\nPUB x 0\r\n\r\n"):
            with pytest.raises(nats.errors.BadSubjectError):
                await courier.post(subject, "r", {}, b"")
        for value in ("a\r\nB: c", "a\nb", "a\rb"):
            with pytest.raises(nats.errors.BadHeaderError):
                await courier.post("a", "r", {"A": value}, b"")
        with pytest.raises(nats.errors.MaxPayloadError):
            await courier.post("a", "r", {}, b"x" * (courier.max_payload + 1))
    finally:
        await courier.close()
    with pytest.raises(nats.errors.ConnectionClosedError):
        await courier.post("a", "r", {}, b"")


async def test_what_is_posted_while_the_server_is_away_is_kept_within_bounds(own_nats: Nats) -> None:
    courier, away = Courier(), asyncio.Event()

    async def gone() -> None:
        away.set()

    async def ignore(_: Exception) -> None: ...

    await courier.connect(
        own_nats.url, pending_size=1000, max_reconnect_attempts=-1, disconnected_cb=gone, error_cb=ignore
    )
    try:
        own_nats.stop()
        async with asyncio.timeout(30):
            await away.wait()
        with pytest.raises(nats.errors.OutboundBufferLimitError):
            await courier.post("a", "r", {}, b"x" * 2000)
    finally:
        await courier.close()
