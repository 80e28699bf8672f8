"""What a disk can lose of a system: the bus's store, and the database's folder set back to a backup."""

import subprocess
import sys
from pathlib import Path

import asyncpg

from app.admin.restore import restore
from app.eventlog.read import read_between
from app.local.nats import Nats
from app.local.postgres import Postgres
from tests.journeys.system import ROOT, System

MANY = 1_000_000


def bus_store(system: System) -> Path:
    """Where the embedded NATS keeps its streams."""
    return system.home / "nats" / "jetstream"


class Backup:
    """A copy of the folder of a database that does not run, as after a power cut or a stop."""

    def __init__(self, folder: Path, copy: Path) -> None:
        """`folder`: the embedded server's, with its data below."""
        self.folder, self.copy = folder, copy

    def take(self) -> None:
        subprocess.run(["rm", "-rf", self.copy], check=True)
        self.copy.parent.mkdir(parents=True, exist_ok=True)
        # With owners and modes: Postgres insists on them.
        subprocess.run(["cp", "-a", (self.folder / "data").resolve(), self.copy], check=True)

    async def put_back(self) -> frozenset[str]:
        """Set the folder back. Returns the ids of the events that are lost by it."""
        before = await _ids(self.folder)
        data = (self.folder / "data").resolve()
        subprocess.run(["rm", "-rf", data], check=True)
        subprocess.run(["cp", "-a", self.copy, data], check=True)
        return before - await _ids(self.folder)


async def _ids(folder: Path) -> frozenset[str]:
    """The ids of all events, asked of a server that runs for the question alone."""
    server = Postgres(folder)
    server.start()
    try:
        connection = await asyncpg.connect(server.url)
        try:
            return frozenset(str(one.event_id) for one in await read_between(connection, 0, 2**62, MANY))
        finally:
            await connection.close()
    finally:
        server.stop()


async def begin_new_life(home: Path) -> None:
    """What the operator of a restored database does before anything else writes: `seatrial admin restore`, with nothing but
    the two servers running."""
    postgres, bus = Postgres(home / "postgres"), Nats(home / "nats")
    postgres.start()
    try:
        bus.start()
        try:
            await restore(postgres.url, bus.url)
        finally:
            bus.stop()
    finally:
        postgres.stop()


async def refused(system: System) -> bool:
    connection = await system.connect()
    try:
        return await connection.fetchval("select refusal from eventlog.relay") == "restore_needed"
    finally:
        await connection.close()


def admin_restore(system: System) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "app", "admin", "restore"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "SEATRIAL_HOME": str(system.home)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
