"""A nudge that makes a cancel fast. The event is the truth; the claim checks it, and the heartbeat's answer guarantees it."""

import contextlib
from collections.abc import AsyncGenerator, Callable

import nats.errors
from nats.aio.msg import Msg

from app.bus import subjects
from app.bus.connection import Bus, NotConnected


async def send_cancel(bus: Bus, work_id: str) -> None:
    """Tell whoever works on it. Nothing happens while NATS is away: the next heartbeat tells it."""
    with contextlib.suppress(NotConnected, nats.errors.Error):
        await bus.nc.publish(subjects.cancel(work_id))


@contextlib.asynccontextmanager
async def cancels(bus: Bus, told: Callable[[str], None]) -> AsyncGenerator[None]:
    """Call `told` with the work id of every cancel while inside."""

    async def on_message(message: Msg) -> None:
        told(subjects.cancelled_work(message.subject))

    listening = await bus.listen(subjects.CANCELS, on_message)
    try:
        yield
    finally:
        await listening.stop()
