"""What the measurements stand on: servers on a real disk with fsync, databases, the engine, the harness, and whole systems.

Unlike the tests, whose servers live in memory: here the disk is part of the answer.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from app.eventlog.migrate import migrate
from app.local import child, harness
from app.local.baseimage import TEST_BASE, ensure_image
from app.local.engine import ensure
from app.local.nats import Nats
from app.local.postgres import Postgres
from app.settings import load
from tests.journeys.system import System

ROOT = Path(__file__).parents[2]


class Ground:
    """Everything lies in one folder that goes with it; what runs is started when it is first wanted."""

    def __init__(self, folder: Path, scale: float) -> None:
        self.folder = folder
        self.scale = scale
        """Share of the full number of events, trials and seconds: small to try the measurements themselves."""
        self._servers = contextlib.AsyncExitStack()
        self._postgres: Postgres | None = None
        self._nats: Nats | None = None
        self._system: System | None = None
        self._databases = 0

    def say(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    def many(self, full: int, least: int = 1) -> int:
        return max(least, round(full * self.scale))

    def place(self, name: str) -> Path:
        """A fresh folder that other accounts may walk through."""
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        place.chmod(0o711)
        return place

    @property
    def postgres(self) -> Postgres:
        if self._postgres is None:
            self._postgres = Postgres(self.place("postgres") / "server")
            self._postgres.start()
            self._servers.callback(self._postgres.stop)
        return self._postgres

    @property
    def nats(self) -> Nats:
        if self._nats is None:
            self._nats = Nats(self.place("nats") / "server")
            self._nats.start()
            self._servers.callback(self._nats.stop)
        return self._nats

    async def database(self) -> str:
        """The URL of a fresh, migrated database."""
        self._databases += 1
        name = f"bench_{self._databases}"
        connection = await asyncpg.connect(self.postgres.url)
        try:
            await connection.execute(f"create database {name}")
        finally:
            await connection.close()
        url = urlsplit(self.postgres.url)._replace(path=f"/{name}").geturl()
        await migrate(url)
        return url

    async def drop(self, url: str) -> None:
        """A database that is no longer wanted: it may be large."""
        connection = await asyncpg.connect(self.postgres.url)
        try:
            await connection.execute(f"drop database {urlsplit(url).path[1:]} with (force)")
        finally:
            await connection.close()

    @property
    def docker_host(self) -> str:
        engine = ensure(load({}))
        ensure_image(engine, TEST_BASE)
        return engine.host

    @property
    def harness(self) -> Path:
        """The folder in which the harness environment is; the one that the tests use."""
        home = ROOT / ".seatrial" / "harness"
        harness.build(home, self.say)
        return home

    @property
    def harness_python(self) -> Path:
        return Path(harness.build(ROOT / ".seatrial" / "harness", self.say).python)

    async def system(self) -> System:
        """Seatrial as `seatrial up` starts it, with the settings that a user gets. One for all measurements."""
        if self._system is None:
            system = System(
                self.place("system"), self.docker_host, self.harness, lease_seconds=30, beat_seconds=5, slots=4
            )
            self._system = await self._servers.enter_async_context(system.running())
        return self._system

    async def rest(self) -> None:
        """End the system that runs, so that it takes no time from what is measured next."""
        await self._servers.aclose()
        self._servers = contextlib.AsyncExitStack()
        self._postgres = self._nats = self._system = None


@contextlib.asynccontextmanager
async def ground(scale: float) -> AsyncGenerator[Ground]:
    folder = Path(tempfile.mkdtemp(prefix="seatrial-bench-"))
    folder.chmod(0o711)
    made = Ground(folder, scale)
    try:
        yield made
    finally:
        await made.rest()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def process(name: str, arguments: list[str], folder: Path, **variables: str) -> Generator[subprocess.Popen[bytes]]:
    """A Python process of ours for as long as the context: `arguments` follow the interpreter."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SEATRIAL_")}
    started = child.spawn(
        [sys.executable, "-P", *arguments],
        log=folder / f"{name}.log",
        death_signal=signal.SIGKILL,
        environment={**kept, "PYTHONPATH": str(ROOT), **variables},
    )
    try:
        yield started
    finally:
        child.end(started, [(signal.SIGTERM, 20), (signal.SIGKILL, 5)])


@contextlib.contextmanager
def roles(names: str, ground: Ground, database: str, nats: str = "") -> Generator[subprocess.Popen[bytes]]:
    """Roles of Seatrial in one process, as the supervisor starts them, on servers of ours."""
    folder = ground.place(names.partition(",")[0])
    variables = {"SEATRIAL_HOME": str(folder), "SEATRIAL_DATABASE_URL": database}
    if nats:
        variables["SEATRIAL_NATS_URL"] = nats
    with process("log", ["-m", "app.local.process", names], folder, **variables) as started:
        yield started
