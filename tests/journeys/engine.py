"""What the container engine itself tells of an installation: its sandboxes, what else carries its label, what happens to them."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx

PATIENCE_SECONDS = 30.0


class Engine:
    def __init__(self, host: str) -> None:
        self.label = "seatrial.instance=?"
        """Of nobody, until `belongs_to` says whose."""
        if host.startswith("unix://"):
            transport = httpx.AsyncHTTPTransport(uds=host.removeprefix("unix://"))
            self._client = httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=60)
        else:
            self._client = httpx.AsyncClient(base_url=host.replace("tcp://", "http://", 1), timeout=60)

    def belongs_to(self, installation: str) -> None:
        self.label = f"seatrial.instance={installation}"

    async def close(self) -> None:
        await self._client.aclose()

    async def sandboxes(self) -> list[dict[str, Any]]:
        """The containers of the installation, in whatever state."""
        return await self._get("containers/json", all="1", filters=json.dumps({"label": [self.label]}))

    async def left(self) -> list[str]:
        """Everything that carries the installation's label: containers, networks, volumes."""
        filters = json.dumps({"label": [self.label]})
        networks = await self._get("networks", filters=filters)
        volumes = (await self._get("volumes", filters=filters)).get("Volumes") or []
        return [
            *(f"container {one['Names']} {one['State']} {one['Labels']}" for one in await self.sandboxes()),
            *(f"network {one['Name']}" for one in networks),
            *(f"volume {one['Name']}" for one in volumes),
        ]

    @contextlib.asynccontextmanager
    async def happenings(self, *actions: str) -> AsyncIterator[AsyncIterator[tuple[str, str]]]:
        """(action, execution) of what happens to the installation's containers from now on: create, start, kill, die, destroy."""
        filters = json.dumps({"label": [self.label], "type": ["container"], "event": list(actions)})
        async with self._client.stream("GET", "/events", params={"filters": filters}, timeout=None) as answer:
            answer.raise_for_status()

            async def told() -> AsyncIterator[tuple[str, str]]:
                async for line in answer.aiter_lines():
                    if line:
                        one = json.loads(line)
                        yield one["Action"], one["Actor"]["Attributes"].get("seatrial.execution", "")

            yield told()

    @contextlib.asynccontextmanager
    async def recorded(self, action: str) -> AsyncIterator[list[str]]:
        """The executions to whose containers it happens from now on."""
        told: list[str] = []

        async def listen(happenings: AsyncIterator[tuple[str, str]]) -> None:
            async for _, execution in happenings:
                told.append(execution)

        async with self.happenings(action) as happenings:
            listening = asyncio.create_task(listen(happenings))
            try:
                yield told
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def executions(self) -> set[str]:
        """Those that have a sandbox now."""
        return {one["Labels"]["seatrial.execution"] for one in await self.sandboxes()}

    async def remove_image(self, reference: str) -> None:
        with contextlib.suppress(httpx.HTTPError):
            await self._client.delete(f"/images/{reference}")

    async def _get(self, path: str, **query: str) -> Any:
        """Asked again when the engine was started anew since the last question."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = await self._client.get(f"/{path}", params=query)
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
            else:
                answer.raise_for_status()
                return answer.json()
