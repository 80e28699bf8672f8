"""A disk of the worker's machine that is full is told as that: the platform's fault, by the error's number, and never a score."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from app.clock import SYSTEM
from tests.conformance.runtimes import ROOT
from tests.dispatcher.rig import Told, trial_spec
from tests.dispatcher.test_serving import START, Client
from workers.dispatcher.harness import locate
from workers.dispatcher.harness.conversation import Conversation
from workers.dispatcher.harness.phases import Phases
from workers.dispatcher.harness.serving import Desk
from workers.dispatcher.harness.telling import Teller
from workers.dispatcher.runtimes.port import Runtime

pytestmark = [pytest.mark.docker, pytest.mark.harness]

# A worker that has its scratch folder on a disk of three megabytes, mounted where nobody else sees it.
WORKER = """
import asyncio, json, sys, uuid
from pathlib import Path
from app.settings import Settings
from tests.dispatcher.rig import probe, trial, trial_spec
from workers.dispatcher.harness.locate import Harness
from workers.dispatcher.harness.server import ForkServer
from workers.dispatcher.runtimes.docker import open_runtime

async def main():
    disk, home, python, host, fill = sys.argv[1:]
    runtime = await open_runtime(Settings(docker_host=host))
    server = ForkServer(Harness(Path(python), "sha256:0", "0.26.0"), Path(home))
    spec = trial_spec(Path(disk), agent=probe(fill=fill), sandbox="none", verify=False)
    seen = await trial(spec, runtime, server)
    print(json.dumps([seen.state, [[e.type, e.phase] for e in seen.exceptions], seen.rewards]))
    await server.close()
    await runtime.close()

asyncio.run(main())
"""
ENTER = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
MOUNT = 'mount -t tmpfs -o size=3m,mode=0700 none "$1" && exec "$2" -c "$3" "$1" "$4" "$5" "$6" "$7"'


@pytest.mark.parametrize(
    ("fill", "state", "phase"),
    [("and clear", "finished", "agent"), ("and leave", "failed", None)],
    ids=["there is room again for the result", "there is none"],
)
async def test_a_child_that_finds_the_disk_full_says_so(
    fill: str, state: str, phase: str | None, tmp_path: Path, built: locate.Harness, docker_host: str
) -> None:
    disk, home = tmp_path / "disk", tmp_path / "home"
    disk.mkdir()
    home.mkdir()
    worker = await asyncio.create_subprocess_exec(
        *ENTER, "sh", "-c", MOUNT, "sh", str(disk), sys.executable, WORKER, str(home), str(built.python), docker_host, fill,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await worker.communicate()
    told: list[Any] = json.loads(said.splitlines()[-1])
    assert told[0] == state
    assert [name for name, _ in told[1]] == ["WorkerDiskFullError"], told
    assert phase is None or told[1][0][1] == phase
    assert told[2] is None


async def test_a_download_that_has_no_room_on_the_worker_s_disk_says_so(
    tiny_disk: Path, tmp_path: Path, runtime: Runtime
) -> None:
    desk = Desk(trial_spec(tmp_path), runtime, tiny_disk, remaining=lambda: 60.0, phase=lambda: "agent")
    client = Client(desk, tiny_disk)
    try:
        assert "error" not in await client.ask(START)
        await client.ask({"op": "exec", "command": "head -c 3m /dev/zero >/big", "environment": {}, "live": False})
        answer = await client.ask({"op": "get", "path": "/big", "file": "1.tar"})
        assert answer["error"] == "WorkerDiskFullError"
        answer = await client.ask({"op": "exec", "command": "true", "environment": {}, "live": False})
        assert answer["return_code"] == 0, "the sandbox is well"
    finally:
        await desk.close()


async def test_a_child_that_prints_onto_a_full_disk_is_read_to_its_end(
    tiny_disk: Path, tmp_path: Path, runtime: Runtime
) -> None:
    """Otherwise it would wait for ever to be rid of its output."""
    told = Told()
    teller = Teller(told.phase, told.chunk)
    desk = Desk(trial_spec(tmp_path), runtime, tmp_path, remaining=lambda: 60.0, phase=lambda: "agent")
    child = Conversation(desk, teller, Phases(), SYSTEM, "exe_a")
    reading, writing = os.pipe()
    keeping = asyncio.create_task(child.keep_printed(reading, (tiny_disk / "harness.log").open("wb")))
    for _ in range(16):
        await asyncio.to_thread(os.write, writing, b"x" * 65_536)
    os.close(writing)
    await keeping
    await teller.close()
    assert len(told.log) == 16 * 65_536
    assert 0 < (tiny_disk / "harness.log").stat().st_size < 16 * 65_536
