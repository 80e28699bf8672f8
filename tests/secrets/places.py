"""Everything that Seatrial writes down or shows, as bytes to be searched: (where, content)."""

import contextlib
import gzip
import io
import json
import os
import tarfile
import threading
import time
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import nats
import nats.js.errors

from app.archives.zstd import ZstdError, decompressor
from tests.journeys.system import children, descendants

Place = tuple[str, bytes]
LARGEST_BYTES = 64 * 1024**2
PACKED = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"PK\x03\x04")
LOOKS = 5
"""At each process: it begins as a copy of its parent, and becomes what it is a moment later."""
ROLES = b"app.local"
"""In the arguments of a process of ours, which may have what the operator gave it."""


# ------------------------------------------------------------ files


def files(folder: Path, *, but: Iterable[Path] = ()) -> Iterator[Place]:
    """Every regular file below a folder with its name, and what is packed in it."""
    left_out = set(but)
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(root) / name not in left_out]
        for name in names:
            path = Path(root) / name
            if path in left_out or not path.is_file() or path.is_symlink():
                continue
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            yield from unpacked(str(path), content)


def unpacked(where: str, content: bytes, wanted: Callable[[str], bool] = lambda name: False) -> Iterator[Place]:
    """The content and, of an archive, its members that are packed or `wanted`: tar, zip, gzip and zstd, also one in another."""
    yield where, content
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        try:
            yield from unpacked(f"{where}!zstd", decompressor().decompress(content, LARGEST_BYTES), wanted)
        except ZstdError:
            return
    elif content.startswith(b"\x1f\x8b"):
        yield from unpacked(f"{where}!gzip", gzip.decompress(content))
    elif content.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from unpacked(f"{where}!{name}", archive.read(name))
    elif content[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                if member.isreg() and (opened := archive.extractfile(member)) is not None:
                    inner = opened.read()
                    if wanted(member.name) or inner.startswith(PACKED):  # else it is part of what was yielded above
                        yield from unpacked(f"{where}!{member.name}", inner)


# ------------------------------------------------------------ processes


class Watch:
    """What every process of the machine shows while the block lasts: arguments, and the environment of those that are not
    Seatrial's own workers (they have what the operator gave them)."""

    def __init__(self, supervisor: int) -> None:
        self._supervisor = supervisor
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self.arguments: set[bytes] = set()
        self.environments: set[bytes] = set()
        self.turns = 0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        looks: dict[str, int] = {}
        while not self._ended.wait(0.02):
            here = {name for name in os.listdir("/proc") if name.isdigit()}
            looks = {name: looks.get(name, 0) + 1 for name in here}
            ours = set(descendants(self._supervisor))
            for name in (name for name, count in looks.items() if count <= LOOKS):
                if arguments := _read(f"/proc/{name}/cmdline"):
                    self.arguments.add(arguments)
                if int(name) in ours and arguments and ROLES not in arguments:
                    self.environments.add(arguments + b"\n" + _read(f"/proc/{name}/environ"))
            self.turns += 1

    def places(self) -> Iterator[Place]:
        yield "arguments of the machine's processes", b"\n".join(sorted(self.arguments))
        for environment in sorted(self.environments):
            yield f"environment of {environment[:200]!r}", environment


def process(pid: int) -> Iterator[Place]:
    """All that a process has but its memory: arguments, environment, the names of what it has mapped, its open files."""
    for name in ("cmdline", "environ", "maps", "mountinfo"):
        yield f"/proc/{pid}/{name}", _read(f"/proc/{pid}/{name}")
    mapped = {line.split(maxsplit=5)[5] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/" in line}
    yield "names of the mapped files", "\n".join(sorted(mapped)).encode()
    for number in os.listdir(f"/proc/{pid}/fd"):
        path = Path(f"/proc/{pid}/fd/{number}")
        yield f"descriptor {number}", str(path.readlink()).encode()
        if path.is_file():
            yield f"descriptor {number} -> {path.readlink()}", path.read_bytes()


def memory(pid: int) -> bytes:
    """The writable memory of a process."""
    parts: list[bytes] = []
    with open(f"/proc/{pid}/mem", "rb", 0) as opened:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, permissions = line.split()[:2]
            low, high = (int(end, 16) for end in span.split("-"))
            if permissions.startswith("rw") and "[v" not in line:
                try:
                    opened.seek(low)
                    parts.append(opened.read(high - low))
                except OSError:
                    continue
    return b"".join(parts)


def open_files(pid: int) -> set[str]:
    """What the process has open or mapped."""
    found: set[str] = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    found |= {line.split(maxsplit=5)[5] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/" in line}
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


# ------------------------------------------------------------ the engine


async def engine(host: str, containers: Iterable[str], images: Iterable[str]) -> AsyncIterator[Place]:
    """What it tells of containers and images, what is in the containers, and their processes' environments."""
    async with _client(host) as client:
        for identity in containers:
            for path in (f"containers/{identity}/json", f"containers/{identity}/top", f"containers/{identity}/changes"):
                yield path, (await client.get(f"/{path}")).content
            for one in unpacked(
                f"file system of {identity}", (await client.get(f"/containers/{identity}/export")).content
            ):
                yield one
            first = (await client.get(f"/containers/{identity}/json")).json()["State"]["Pid"]
            for pid in (first, *children(first)):
                yield f"environment of {pid} in {identity}", _read(f"/proc/{pid}/environ")
        for identity in images:
            for path in (f"images/{identity}/json", f"images/{identity}/history"):
                yield path, (await client.get(f"/{path}")).content


async def has_file(host: str, container: str, path: str) -> bool:
    async with _client(host) as client:
        return (await client.head(f"/containers/{container}/archive", params={"path": path})).is_success


def _client(host: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=host.removeprefix("unix://"))
    return httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=60)


# ------------------------------------------------------------ servers

TABLES = """select format('%I.%I', n.nspname, c.relname), n.nspname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where c.relkind in ('r', 'm') and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast') order by 1"""
SERVER_TABLES = ("pg_stat_activity", "pg_settings", "pg_database", "pg_description", "pg_shdescription")


async def database(url: str) -> AsyncIterator[Place]:
    """Every row of every table, value by value."""
    connection = await asyncpg.connect(url)
    try:
        names = [row[0] for row in await connection.fetch(TABLES)]
        for name in (*names, *SERVER_TABLES):
            rows = await connection.fetch(f"select * from {name}")
            yield f"table {name}", b"\n".join(_bytes(value) for row in rows for value in row.values())
    finally:
        await connection.close()


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, list | tuple):
        return b"\n".join(_bytes(one) for one in value)
    return str(value).encode(errors="surrogatepass")


async def jetstream(url: str) -> AsyncIterator[Place]:
    """Every message of every stream with its headers, the description of streams and consumers, and the texts of each
    subject's log put together: a chunk may end in the middle of a word."""
    client = await nats.connect(url)
    try:
        context = client.jetstream()
        for stream in await context.streams_info():
            name = str(stream.config.name)
            yield f"stream {name}", repr((stream, await context.consumers_info(name))).encode()
            texts: dict[str, list[bytes]] = {}
            for sequence in range(stream.state.first_seq, stream.state.last_seq + 1):
                try:
                    message = await context.get_msg(name, sequence)
                except nats.js.errors.NotFoundError:
                    continue
                data = message.data or b""
                yield (
                    f"{name} {sequence}",
                    b"\n".join((str(message.subject).encode(), repr(message.headers).encode(), data)),
                )
                if name == "LOGS":
                    texts.setdefault(str(message.subject), []).append(json.loads(data)["text"].encode())
            for subject, parts in texts.items():
                yield f"log {subject}", b"".join(parts)
    finally:
        await client.close()


def recently_made(folder: Path, since: float) -> Iterator[Place]:
    """Small files that appeared in a folder that everybody uses."""
    for path in folder.glob("*"):
        try:
            facts = path.lstat()
            if facts.st_mtime >= since and path.is_file() and not path.is_symlink() and facts.st_size < LARGEST_BYTES:
                yield str(path), path.read_bytes()
        except OSError:
            continue


def now() -> float:
    return time.time()
