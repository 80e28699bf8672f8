"""The few calls of the Docker Engine API that a sandbox needs, with typed errors and streamed bodies.

aiodocker gives the session and the hijacked streams (attach, exec). Archives go past its API, which would parse them in
memory. Every connection is its own: a lifeline holds one for as long as its sandbox lives, so there is no pool limit.
"""

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from typing import Any

import aiodocker
import aiohttp

from workers.dispatcher.runtimes.port import EngineUnavailable

DEFAULT_HOST = "unix:///var/run/docker.sock"
OLDEST_API, NEWEST_API = (1, 41), (1, 45)
CALL_SECONDS = 60.0
"""An engine that does not answer a plain call for this long counts as away."""

_AWAY = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError, OSError)


class EngineRefused(Exception):
    """The engine answered with an error. Translated by whoever knows what was asked."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (engine status {status})")
        self.status = status
        self.message = message


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


class Engine:
    """One engine. Made by `connect`, which has also agreed on the version of the API."""

    def __init__(self, docker: aiodocker.Docker, connector: aiohttp.BaseConnector, api: str) -> None:
        self.docker = docker
        self._connector = connector
        self._base = f"{docker.docker_host}/{api}/"

    async def close(self) -> None:
        await self.docker.close()
        await self._connector.close()

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        data: AsyncIterable[bytes] | bytes | None = None,
        seconds: float | None = CALL_SECONDS,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """One answered request, body unread. `seconds` bounds all of it; None: not at all.

        Raises EngineUnavailable, EngineRefused.
        """
        headers: dict[str, str] = {}
        if body is not None:
            data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        elif data is not None:
            headers = {"Content-Type": "application/x-tar"}
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=10)
        try:
            async with self.docker.session.request(
                method, self._base + path, params=params, data=data, headers=headers, timeout=timeout
            ) as response:
                if response.status >= 400:
                    raise EngineRefused(response.status, await _message(response))
                yield response
        except _AWAY as error:
            raise EngineUnavailable(f"the container engine does not answer ({type(error).__name__})") from error

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        seconds: float | None = CALL_SECONDS,
    ) -> Any:
        """The decoded JSON of an answer, None for an empty one."""
        async with self.request(method, path, params=params, body=body, seconds=seconds) as response:
            text = await response.read()
            return json.loads(text) if text.strip() else None

    async def lines(self, path: str, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The JSON objects of an endless answer, as they come."""
        async with self.request("GET", path, params=params, seconds=None) as response:
            async for line in response.content:
                if line.strip():
                    yield json.loads(line)


async def _message(response: aiohttp.ClientResponse) -> str:
    text = (await response.content.read(4096)).decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip() or response.reason or "no message"


async def connect(host: str) -> Engine:
    """Connect to `host` (unix://…, tcp://…; with DOCKER_CERT_PATH and DOCKER_TLS_VERIFY: TLS). Empty: DOCKER_HOST, else
    the usual socket. Raises EngineUnavailable."""
    host = host or os.environ.get("DOCKER_HOST", "") or DEFAULT_HOST
    try:
        connector = _connector(host)
        docker = aiodocker.Docker(url=_url(host), connector=connector, api_version="v1.41")
        docker.docker_host = (
            "http://localhost" if host.startswith("unix://") else _url(host).replace("tcp://", "http://")
        )
    except (ValueError, OSError) as error:
        raise EngineUnavailable(f"{host} is not the address of a container engine: {error}") from error
    try:
        async with docker.session.get(
            f"{docker.docker_host}/version", timeout=aiohttp.ClientTimeout(total=15)
        ) as answer:
            answer.raise_for_status()
            told = await answer.json(content_type=None)
        newest = min(_version(told["ApiVersion"]), NEWEST_API)
        oldest = max(_version(told.get("MinAPIVersion") or "1.24"), OLDEST_API)
    except (*_AWAY, aiohttp.ClientError, KeyError, ValueError) as error:
        await docker.close()
        await connector.close()
        raise EngineUnavailable(f"no container engine answers at {host} ({type(error).__name__}: {error})") from error
    if newest < OLDEST_API:
        await docker.close()
        await connector.close()
        raise EngineUnavailable(f"the container engine at {host} is too old: API {told['ApiVersion']}, 1.41 is needed")
    api = "v{}.{}".format(*max(newest, oldest))
    docker.api_version = api
    return Engine(docker, connector, api)


def _url(host: str) -> str:
    return host.replace("tcp://", "https://", 1) if _tls() else host


def _tls() -> bool:
    return os.environ.get("DOCKER_TLS_VERIFY", "") not in ("", "0")


def _connector(host: str) -> aiohttp.BaseConnector:
    if host.startswith("unix://"):
        return aiohttp.UnixConnector(host.removeprefix("unix://"), limit=0)
    if not host.startswith(("tcp://", "http://", "https://")):
        raise ValueError("it must start with unix:// or tcp://")
    if not _tls():
        return aiohttp.TCPConnector(limit=0)
    folder = os.environ.get("DOCKER_CERT_PATH", os.path.expanduser("~/.docker"))  # noqa: PTH111
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
    return aiohttp.TCPConnector(limit=0, ssl=context)


async def settled(job: "asyncio.Future[Any]") -> None:
    """Wait for a job to end however it ends, also while we are being cancelled (the cancel is raised afterwards)."""
    cancelled: asyncio.CancelledError | None = None
    while not job.done():
        try:
            await asyncio.wait({job})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
