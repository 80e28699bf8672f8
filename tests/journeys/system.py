"""Seatrial as `seatrial up` starts it, in a home of its own, to be broken from outside.

Whatever a test does to it, it does with signals to processes that descend from the supervisor that this module started.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg

from app.eventlog.model import Recorded
from app.eventlog.read import read_between
from app.local import child, state
from tests.journeys.api import Api
from tests.journeys.engine import Engine
from tests.journeys.own_engine import OwnEngine
from workers.builder.build.buildx import REPOSITORY

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 3.0
BEAT_SECONDS = 0.5
READY_SECONDS = 120.0
MANY_RESTARTS = 3

GROUPS = ("api", "relay", "projector", "foreman", "builder", "dispatcher")
SERVERS = ("postgres", "nats")
HARNESS = ("fork server", "harness child")
ENGINE = "engine"
"""The container engine, where the system has one of its own: it can be frozen by this name, and be killed by own_engine.py."""


class NotThere(Exception):
    """There is no such process now."""


class System:
    def __init__(
        self,
        folder: Path,
        docker_host: str,
        harness: Path,
        *,
        own_engine: OwnEngine | None = None,
        program: str = "app.local",
        variables: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`folder`: an existing one, which every account may walk through. `settings`: of app/settings.py.

        `own_engine`: the one at `docker_host`, when it may be killed. `program`: the module that is run with `up`;
        `variables`: of its environment.
        """
        self.home = folder / "home"
        self.log = folder / "up.log"
        self.engine = Engine(docker_host)
        self.own_engine = own_engine
        self.program = program
        self.variables = dict(variables or {})
        values = {
            "home": self.home,
            "http_port": 0,
            "docker_host": docker_host,
            "harness_home": harness,
            "lease_seconds": LEASE_SECONDS,
            "beat_seconds": BEAT_SECONDS,
            "drain_seconds": 5,
            "slots": 4,
            **settings,
        }
        self.settings = {f"SEATRIAL_{name.upper()}": str(value) for name, value in values.items()}
        self._popen: subprocess.Popen[bytes] | None = None
        self._api: Api | None = None

    # ------------------------------------------------------------ from start to stop

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["System"]:
        try:
            await self.start()
            yield self
        finally:
            await self.stop()

    async def start(self, *, restored: bool = False) -> None:
        """From the thread that lasts: the supervisor dies with it. `restored`: say that the database was."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SEATRIAL_")}
        self._popen = child.spawn(
            [sys.executable, "-P", "-m", self.program, "up", *(["--restored"] if restored else [])],
            log=self.log,
            death_signal=signal.SIGKILL,
            environment={**environment, **self.settings, **self.variables, "PYTHONPATH": str(ROOT)},
        )
        deadline = time.monotonic() + READY_SECONDS
        while not ((found := state.load(self.home)) and found.ready):
            assert self._popen.poll() is None, f"it did not start: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"it is not ready: {self.log.read_text()[-2000:]}"
            await asyncio.sleep(0.05)
        connection = await self.connect()
        try:
            self.engine.belongs_to(str(await connection.fetchval("select id from seatrial.installation")))
        finally:
            await connection.close()
        if self._api is None or self._api.url != found.url:
            revisions = [] if self._api is None else self._api.revisions
            if self._api is not None:
                await self._api.close()
            self._api = Api(found.url, state.key_file(self.home).read_text().strip(), revisions)

    async def stop(self) -> None:
        """As `seatrial down` does; then nothing of it is left on the engine."""
        revisions: list[str] = []
        if self._api is not None:
            revisions = self._api.revisions
            await self._api.close()
            self._api = None
        await self.end()
        for revision in revisions:
            await self.engine.remove_image(f"{REPOSITORY}/{revision}")
        await self.engine.close()

    async def rest(self) -> None:
        """Stop and start it, when the supervisor has come to wait long before it starts again what was killed often."""
        found = state.load(self.home)
        assert found is not None, "it does not run"
        if max(one.restarts for one in (*found.servers, *found.processes)) >= MANY_RESTARTS:
            await self.end()
            await self.start()

    async def end(self) -> None:
        if self._popen is None or self._popen.poll() is not None:
            return
        for pid in [self._popen.pid, *descendants(self._popen.pid)]:
            send(pid, signal.SIGCONT)  # a test that failed may have left one frozen
        self._popen.send_signal(signal.SIGTERM)
        for _ in range(600):
            if self._popen.poll() is not None:
                return
            await asyncio.sleep(0.1)
        self._popen.kill()
        self._popen.wait()

    async def die(self) -> None:
        """As in a power cut: the supervisor is killed, and all of its children end with it. `start` starts it again."""
        everything = [self.supervisor, *descendants(self.supervisor)]
        send(self.supervisor, signal.SIGKILL)
        assert self._popen is not None
        self._popen.wait()
        while any(is_alive(pid) for pid in everything):
            await asyncio.sleep(0.02)

    @property
    def api(self) -> Api:
        assert self._api is not None, "it does not run"
        return self._api

    @property
    def supervisor(self) -> int:
        assert self._popen is not None, "it does not run"
        return self._popen.pid

    # ------------------------------------------------------------ its processes

    def pids(self, target: str) -> list[int]:
        """The living processes of a target: one, or the harness's children, of which there may be many or none."""
        if target == ENGINE:
            return [] if self.own_engine is None or self.own_engine.pid is None else [self.own_engine.pid]
        if target in HARNESS:
            servers = [pid for pid in descendants(*self.pids("dispatcher")) if is_fork_server(pid)]
            return servers if target == "fork server" else [pid for one in servers for pid in children(one)]
        found = state.load(self.home)
        assert found is not None, "it does not run"
        known = {one.name: one.pid for one in (*found.servers, *found.processes)}
        ours = descendants(self.supervisor)
        return [known[target]] if known[target] in ours and is_alive(known[target]) else []

    def kill(self, target: str) -> int:
        """SIGKILL. Raises NotThere."""
        found = self.pids(target)
        if not found:
            raise NotThere(target)
        send(found[0], signal.SIGKILL)
        return found[0]

    async def gone(self, target: str) -> None:
        """Kill it, as soon as it is there, and wait for its end."""
        while not self.pids(target):
            await asyncio.sleep(0.02)
        killed = self.kill(target)
        while is_alive(killed):
            await asyncio.sleep(0.01)

    async def started_again(self, target: str, before: int, limit: float = 60.0) -> None:
        """Wait until the supervisor has started a target again that was killed as `before`."""
        deadline = time.monotonic() + limit
        while not (now := self.pids(target)) or now == [before]:
            assert time.monotonic() < deadline, f"{target} was not started again"
            await asyncio.sleep(0.02)

    @contextlib.contextmanager
    def nobody_restarts(self) -> Iterator[None]:
        """The supervisor is frozen meanwhile: what is killed stays away until the end."""
        with frozen([self.supervisor]):
            yield

    @contextlib.contextmanager
    def frozen(self, target: str) -> Iterator[list[int]]:
        """SIGSTOP a target and all that it started; SIGCONT at the end, to what is left of them."""
        pids = [pid for one in self.pids(target) for pid in (one, *descendants(one))]
        with frozen(pids):
            yield pids

    @contextlib.asynccontextmanager
    async def another(self, roles: str, folder: Path) -> AsyncIterator[int]:
        """A further process with these roles, as on a second machine: in a home of its own below `folder`."""
        environment = dict(
            one.split("=", 1)
            for one in Path(f"/proc/{self.pids('dispatcher')[0]}/environ").read_text().split("\0")
            if "=" in one
        )
        home = folder / "another"
        home.mkdir()
        objects = environment.get("SEATRIAL_OBJECTS_URL") or f"file://{self.home / 'objects'}"
        process = child.spawn(
            [sys.executable, "-P", "-m", "app.local.process", roles],
            log=folder / "another.log",
            death_signal=signal.SIGKILL,
            environment={**environment, "SEATRIAL_HOME": str(home), "SEATRIAL_OBJECTS_URL": objects},
        )
        try:
            yield process.pid
        finally:
            process.terminate()
            for _ in range(300):
                if process.poll() is not None:
                    break
                await asyncio.sleep(0.1)
            else:
                process.kill()
                process.wait()

    # ------------------------------------------------------------ what it has written

    @property
    def database_url(self) -> str:
        return (self.home / "run" / "database-url").read_text()

    @property
    def nats_url(self) -> str:
        return (self.home / "run" / "nats-url").read_text()

    async def connect(self, limit: float = 60.0) -> "asyncpg.Connection[asyncpg.Record]":
        """A connection of our own to its database, as soon as that answers."""
        deadline = time.monotonic() + limit
        while True:
            try:
                return await asyncpg.connect(self.database_url, timeout=5, statement_cache_size=0)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def events(self) -> list[Recorded]:
        """The whole log, in order of position."""
        connection = await self.connect()
        try:
            return await read_between(connection, 0, 2**62, 1_000_000)
        finally:
            await connection.close()

    def result_of(self, execution_id: str) -> Path:
        """Where the object store keeps the result of an execution."""
        return self.home / "objects" / "executions" / execution_id / "result.json"


# ------------------------------------------------------------ processes of this machine


@contextlib.contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(one) for one in (thread / "children").read_text().split()]
    return found


def descendants(*pids: int) -> list[int]:
    found: list[int] = []
    for pid in pids:
        for one in children(pid):
            found += [one, *descendants(one)]
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_fork_server(pid: int) -> bool:
    """The server itself: neither what holds its namespace nor one of the children that it forked."""
    return _runs_harness(pid) and not _runs_harness(_parent(pid))


def _runs_harness(pid: int) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"seatrial_harness.forkserver" in arguments and b"python" in Path(os.fsdecode(arguments[0])).name.encode()


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
