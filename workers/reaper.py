"""The reaper: removes sandboxes that no live lease owns.

It lists the sandboxes of its installation first and reads the leases second: a sandbox made in between is not on the list,
and one whose trial was claimed in between is. Without an answer from the log it does nothing. What is younger than two beats
is left alone, and a sandbox whose trial is still leased goes only when its execution is not the one that runs.
"""

import asyncio

import structlog

from app.boot import House, open_house
from app.settings import Settings
from workers.dispatcher.runtimes.choose import open_runtime
from workers.dispatcher.runtimes.port import EngineUnavailable, Runtime, SandboxInfo
from workers.looper import repeat, until
from workers.statements import statement

log = structlog.get_logger()

SWEEP_SECONDS = 10.0
CLOCKS_SECONDS = 60.0
"""How far the clock of an engine on another machine may be ahead."""


async def main(settings: Settings, stop: asyncio.Event) -> None:
    async with open_house(settings, connections=2) as house:
        runtime = await open_runtime(settings)
        try:
            await Reaper(house, runtime).run(stop)
        finally:
            await runtime.close()


class Reaper:
    def __init__(self, house: House, runtime: Runtime) -> None:
        self.house, self.runtime = house, runtime

    async def run(self, stop: asyncio.Event) -> None:
        await repeat("reaper", stop, self.turn)

    async def turn(self, stop: asyncio.Event) -> None:
        try:
            await self.reap()
        except EngineUnavailable as error:
            log.warning("the container engine is away", error=str(error))
        await until(stop, min(SWEEP_SECONDS, self.house.settings.lease_seconds / 2))

    async def reap(self) -> list[SandboxInfo]:
        """One sweep. Returns what was removed."""
        settings = self.house.settings
        sandboxes = await self.runtime.list_sandboxes(str(self.house.installation))
        if not sandboxes:
            return []
        rows = await self.house.pool.fetch(statement("read_running"), [one.labels.trial for one in sandboxes])
        running = {row["execution_id"] for row in rows}
        now = self.house.clock.now().timestamp()
        removed: list[SandboxInfo] = []
        for one in sandboxes:
            # Not so when it was made in the future: the clock was set back since.
            young = -CLOCKS_SECONDS < now - one.created_at < 2 * settings.beat_seconds
            if one.labels.execution in running or young:
                continue
            log.warning("removing a sandbox that no lease owns", sandbox=one.id[:12], execution=one.labels.execution)
            await self.runtime.remove(one.id)
            removed.append(one)
        return removed
