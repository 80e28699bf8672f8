"""A user of the API who does not give up: what is refused for now, or not answered, is asked again."""

import asyncio
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from app.archives.folder import pack_folder

PATIENCE_SECONDS = 90.0
"""How long a user asks again. Longer than the supervisor's longest pause, and than any outage of these tests."""

Json = dict[str, Any]


class Problem(Exception):
    """The API refused, for good."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status} {body.get('code')}: {body.get('detail')}")
        self.status, self.body = status, body
        self.code = str(body.get("code"))


class Api:
    def __init__(self, url: str, key: str, revisions: list[str]) -> None:
        """`revisions`: gets the id of each that is made here, because each leaves an image on the engine."""
        self.client = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=httpx.Timeout(20, connect=5)
        )
        self.url = url
        self.position = ""
        self.revisions = revisions

    async def close(self) -> None:
        await self.client.aclose()

    async def get(self, path: str, **query: Any) -> Any:
        return await self._call("GET", path, params=query)

    async def text(self, path: str) -> str:
        answer = await self.client.get(path)
        answer.raise_for_status()
        return answer.text

    async def post(self, path: str, body: Any = None) -> Any:
        """Sent again with the same idempotency key: a lost answer makes nothing twice."""
        return await self._call("POST", path, json={} if body is None else body, key=str(uuid.uuid4()))

    async def pages(self, path: str) -> AsyncIterator[Json]:
        token = None
        while True:
            page = await self.get(path, page_size=200, **({"page_token": token} if token else {}))
            for item in page["items"]:
                yield item
            token = page.get("next_page_token")
            if not token:
                return

    async def push(self, folder: Path, task: str) -> Json:
        """Upload a pack and make a revision of it."""
        with tempfile.TemporaryFile() as file:
            pack_folder(folder, file)
            file.seek(0)
            content = file.read()
        upload = await self.post("/v1/uploads")
        await self._call("PUT", f"/v1/uploads/{upload['id']}/content", content=content)
        made = await self.post(f"/v1/tasks/{task}/revisions", {"upload": upload["id"]})
        self.revisions.append(made["revision_id"])
        return await self.get(f"/v1/revisions/{made['revision_id']}")

    async def built(self, folder: Path, task: str) -> Json:
        """Upload a pack and wait until it is ready or rejected."""
        revision = await self.push(folder, task)
        return await self.settled(f"/v1/revisions/{revision['id']}", ("ready", "rejected"))

    async def start(self, tasks: list[str], *, trials: int = 1, agent: str = "oracle", **more: Any) -> Json:
        return await self.post("/v1/runs", {"tasks": tasks, "agent": {"name": agent}, "trials": trials, **more})

    async def completed(self, run: Json, limit: float = 240.0) -> Json:
        return await self.settled(f"/v1/runs/{run['id']}", ("completed",), limit)

    async def settled(self, path: str, statuses: tuple[str, ...], limit: float = 240.0) -> Json:
        deadline = time.monotonic() + limit
        while (found := await self._call("GET", path, headers={"Prefer": "wait=2"}))["status"] not in statuses:
            assert time.monotonic() < deadline, f"{path} is still {found['status']} after {limit:.0f} s"
            await asyncio.sleep(0.05)
        return found

    async def _call(self, method: str, path: str, *, key: str | None = None, **request: Any) -> Any:
        headers = dict(request.pop("headers", {}))
        if key:
            headers["Idempotency-Key"] = key
        if self.position and method == "GET":
            headers["Seatrial-After"] = self.position
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = await self.client.request(method, path, headers=headers, **request)
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
            else:
                self.position = answer.headers.get("Seatrial-Position") or self.position
                if answer.is_success:
                    return answer.json() if answer.content else None
                problem = answer.json()
                if not problem.get("retryable") or time.monotonic() > deadline:
                    raise Problem(answer.status_code, problem)
            await asyncio.sleep(0.1)
