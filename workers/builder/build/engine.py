"""The few calls of the Docker Engine API (1.41 and later) that builds need, with typed errors."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from workers.builder.build.port import EngineUnavailable

API = "v1.41"
DEFAULT_HOST = "unix:///var/run/docker.sock"
CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
CHUNK = 256 * 1024


class Refused(Exception):
    """The engine answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class ImageConfig(msgspec.Struct, frozen=True, rename="pascal"):
    working_dir: str = ""
    user: str = ""


class ImageFacts(msgspec.Struct, frozen=True, rename="pascal"):
    """What `GET /images/{name}/json` tells."""

    id: str
    size: int = 0
    architecture: str = ""
    os: str = ""
    repo_digests: tuple[str, ...] | None = None
    config: ImageConfig | None = None


class EngineFacts(msgspec.Struct, frozen=True, rename="pascal"):
    """What `GET /info` tells."""

    docker_root_dir: str = ""


class PullError(msgspec.Struct, frozen=True):
    error: str = ""


class Engine:
    """One connection pool to one engine, made inside a running loop.

    Every call raises EngineUnavailable when there is no answer, or Refused."""

    def __init__(self, host: str) -> None:
        address = urlsplit(host)
        self.host = host
        if address.scheme == "unix":
            connector: aiohttp.BaseConnector = aiohttp.UnixConnector(path=address.path)
            self._base = f"http://engine/{API}"
        elif address.scheme in ("tcp", "http", "https") and address.hostname:
            tls = _tls() if address.scheme == "https" or os.environ.get("DOCKER_TLS_VERIFY") else None
            connector = aiohttp.TCPConnector(ssl=tls or True)
            self._base = f"{'https' if tls else 'http'}://{address.hostname}:{address.port or 2375}/{API}"
        else:
            raise EngineUnavailable(f"{host!r} is not an engine's address: give unix:///path or tcp://host:port")
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        )

    async def close(self) -> None:
        await self._session.close()

    async def ping(self) -> bool:
        with contextlib.suppress(EngineUnavailable, Refused):
            async with self._call("GET", "/_ping", seconds=CONNECT_SECONDS):
                return True
        return False

    async def facts(self) -> EngineFacts:
        async with self._call("GET", "/info") as answer:
            return msgspec.json.decode(await self._read(answer), type=EngineFacts)

    async def image(self, name: str) -> ImageFacts | None:
        """The image of this name, digest or id; None when the engine has none."""
        try:
            async with self._call("GET", f"/images/{_path(name)}/json") as answer:
                return msgspec.json.decode(await self._read(answer), type=ImageFacts)
        except Refused as refused:
            if refused.status in (400, 404):
                return None
            raise

    async def tag(self, name: str, repository: str, tag: str) -> None:
        async with self._call("POST", f"/images/{_path(name)}/tag", {"repo": repository, "tag": tag}):
            pass

    async def remove_image(self, name: str) -> None:
        """Untag, and remove what nothing else uses. Gone already, or still in use, is no error."""
        try:
            async with self._call("DELETE", f"/images/{_path(name)}"):
                pass
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    async def in_registry(self, name: str) -> bool | None:
        """Whether the image's registry has it; None when the registry does not say."""
        try:
            async with self._call("GET", f"/distribution/{_path(name)}/json"):
                return True
        except Refused as refused:
            return False if refused.status in (400, 401, 403, 404) else None

    async def pull(self, name: str, told: Callable[[bytes], None]) -> str:
        """Fetch an image; each line of the engine's progress goes to `told`. Returns what went wrong, or nothing."""
        async with self._call("POST", "/images/create", {"fromImage": name}, seconds=None) as answer:
            error, rest = "", b""
            while True:
                with self._translated():
                    chunk = await answer.content.read(CHUNK)
                if not chunk:
                    return error
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, (line.strip() for line in lines)):
                    with contextlib.suppress(msgspec.DecodeError):
                        error = msgspec.json.decode(line, type=PullError).error or error
                    told(line)

    @contextlib.asynccontextmanager
    async def export(self, name: str) -> AsyncGenerator[BinaryIO]:
        """The image as `docker save` writes it: a file for another thread to read, while this loop runs."""
        async with self._call("GET", f"/images/{_path(name)}/get", seconds=None) as answer:
            yield cast(BinaryIO, _Body(answer.content, asyncio.get_running_loop()))

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncGenerator["Watch"]:
        """Holds a connection open, so that it is known afterwards whether the engine went away in between."""
        async with self._call("GET", "/events", {"filters": '{"type":["none"]}'}, seconds=None) as answer:
            watch = Watch()
            task = asyncio.create_task(watch.follow(answer.content), name="watch engine")
            try:
                yield watch
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    @contextlib.asynccontextmanager
    async def _call(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, seconds: float | None = ANSWER_SECONDS
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """An answer that is no error. Only what the engine does is translated, never what the caller does with it."""
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        with self._translated():
            answer = await self._session.request(method, self._base + path, params=query, timeout=timeout)
        async with answer:
            if answer.status >= 400:
                raise Refused(answer.status, _message(await self._read(answer)))
            yield answer

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        with self._translated():
            return await answer.read()

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EngineUnavailable(f"the container engine at {self.host} does not answer") from error


class Watch:
    def __init__(self) -> None:
        self.ended = False

    async def follow(self, content: aiohttp.StreamReader) -> None:
        """Reads until the engine hangs up."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            while await content.readany():
                pass
        self.ended = True


class _Body:
    """The blocking side of a response's body: `read` is called in a thread, and waits for the loop."""

    def __init__(self, content: aiohttp.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        self._content, self._loop = content, loop

    def read(self, limit: int) -> bytes:
        try:
            return asyncio.run_coroutine_threadsafe(self._content.read(limit), self._loop).result()
        except (aiohttp.ClientError, OSError) as error:
            raise EngineUnavailable("the container engine stopped sending the image") from error


def _path(name: str) -> str:
    return quote(name, safe="/:@")


class Problem(msgspec.Struct, frozen=True):
    message: str = ""


def _message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Problem).message
    except msgspec.DecodeError:
        return body[:500].decode("utf-8", "replace")


def _tls() -> ssl.SSLContext:
    """As the docker command does it: DOCKER_CERT_PATH holds ca.pem, cert.pem and key.pem."""
    folder = Path(os.environ.get("DOCKER_CERT_PATH") or "~/.docker").expanduser()
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
