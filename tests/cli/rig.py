"""The command line as a user calls it: a process of its own, against an API that runs in the tests' loop."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

import projections.main
from app import ids
from app.boot import open_house
from app.bus import relay, topology
from app.domain.events import Tally
from app.settings import Settings
from tests.http.story import Story
from tests.http.world import Server, Team

ROOT = Path(__file__).parents[2]
SECONDS = 60


class Ended(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


async def python(*arguments: str, folder: Path, **variables: str) -> asyncio.subprocess.Process:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT)} | variables,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> Ended:
    try:
        out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"it did not end:\n{out.decode()}\n{err.decode()}") from None
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


@contextlib.asynccontextmanager
async def api(settings: Settings) -> AsyncIterator[Server]:
    """The API on a free port, with the relay and the projector that it lives on."""
    await topology.ensure(settings.nats_url)
    stop = asyncio.Event()
    async with open_house(settings, connections=16) as house, Server(house).serving() as serving:
        others = [
            asyncio.create_task(relay.main(settings, stop)),
            asyncio.create_task(projections.main.main(settings, stop)),
        ]
        yield serving
        stop.set()
        await asyncio.gather(*others)


class Shell:
    """A folder, and a key in the environment."""

    def __init__(self, team: Team, folder: Path, url: str | None = None, role: str = "member") -> None:
        self.team, self.folder = team, folder
        self.variables = {"SEATRIAL_API_URL": url or team.server.url, "SEATRIAL_API_KEY": team.keys[role]}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await python("-m", "app", *arguments, folder=self.folder, **self.variables)

    async def __call__(self, *arguments: str) -> Ended:
        return await ended(await self.start(*arguments))


async def next_stream(team: Team, kind: str, seen: set[str]) -> str:
    """The next stream of a category that the team gets."""
    async with asyncio.timeout(SECONDS):
        while True:
            rows = await team.house.pool.fetch(
                "select id from eventlog.stream where team = $1 and category = $2", team.id, kind
            )
            for row in rows:
                if row["id"] not in seen:
                    seen.add(row["id"])
                    return row["id"]
            await asyncio.sleep(0.02)


async def play(
    team: Team, *, score: bool = True, failing: int = 0, cancelled: bool = False, archive: bytes = b"an archive",
    after: str | None = None,
) -> str:  # fmt: skip
    """What foreman and workers write of the next run (but the one it comes `after`): its trials score 1.0 but the last
    `failing` ones, or all error; those that adopt a score have it; then the evidence is sealed."""
    story, run_id = Story(team.house, team.id), await next_stream(team, "run", {after} if after else set())
    trials = await story.expand(run_id)
    failing = failing if score else len(trials)
    for number, trial_id in enumerate(trials):
        execution_id = await story.start(run_id, trial_id)
        await story.leave(trial_id, execution_id, 1, {"answer.txt": b"42"}, ["hello\n", "world\n"])
        scores = number < len(trials) - failing
        await (story.score(run_id, trial_id, execution_id) if scores else story.fail(run_id, trial_id, execution_id))
    count = await story.trials(run_id)
    tally = Tally(trials=count, scored=count - failing, cancelled=0, errored={"task": failing} if failing else {})
    evaluation_id = await story.complete(run_id, 1, tally)
    await story.complete_run(run_id, tally, cancelled=cancelled)
    await story.seal(run_id, evaluation_id, archive)
    assert evaluation_id == ids.derive("evaluation", run_id, 1)
    return run_id


class Faults:
    """A proxy before the API that lets `faults` happen, one a connection, and then nothing more.

    A number cuts the answer after so many bytes; "busy" is what the API says while its database is away; "away" is a proxy's
    own word for a server that it does not reach.
    """

    PROBLEM = json.dumps({"detail": "the database does not answer", "code": "log_unavailable", "retryable": True})

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self.faults: list[int | str] = []
        self.met: list[int | str] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["Faults"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            fault = self.faults.pop(0) if self.faults and self._path.encode() in head.split(b"\r\n")[0] else None
            if fault is not None:
                self.met.append(fault)
            if fault == "busy":
                answer = (
                    f"HTTP/1.1 503 Service Unavailable\r\nContent-Length: {len(self.PROBLEM)}\r\n\r\n{self.PROBLEM}"
                )
                writer.write(answer.encode())
            elif fault == "away":
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops")
            else:
                await self._through(head, reader, writer, fault if isinstance(fault, int) else None)
            await writer.drain()
        writer.close()

    async def _through(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
    ) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self._port)
        forth.write(head)

        async def send() -> None:
            while piece := await reader.read(65536):
                forth.write(piece)
            forth.close()  # the client has gone; the API would keep the connection for a while

        sending, left = asyncio.create_task(send()), limit
        try:
            while piece := await back.read(65536 if left is None else min(65536, left)):
                writer.write(piece)
                await writer.drain()
                left = None if left is None else left - len(piece)
                if left == 0:
                    break
        finally:
            sending.cancel()
            forth.close()
