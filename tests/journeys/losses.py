"""What a disk can lose of a system: the bus's store, and the database's folder set back to a backup."""

import subprocess
from pathlib import Path

import asyncpg

from app.eventlog.read import read_between
from app.local.postgres import Postgres
from tests.journeys.system import System

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
