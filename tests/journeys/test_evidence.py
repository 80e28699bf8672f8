"""The same evaluation gives the same archive, whoever makes it and when; its SBOM is a valid one."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from app.domain.events import EvidenceSealed
from tests.journeys.holds import everything_holds
from tests.journeys.system import ROOT, System

pytestmark = [pytest.mark.docker, pytest.mark.harness, pytest.mark.slow]

# A further attester: it reads the log and the store, and writes what it makes of an evaluation to a file.
ATTEST = """
import asyncio, sys
from pathlib import Path

from app import settings
from app.boot import open_house
from workers.attester.main import Attester
from workers.builder.build.docker import open_backend
from workers.streams import EVIDENCE, load

async def main(evidence, scratch):
    values = settings.load()
    async with open_house(values, connections=2) as house:
        backend = await open_backend(values, Path(scratch))
        try:
            owed = (await load(house, EVIDENCE, evidence)).state
            print((await Attester(house, backend)._archive(owed)).archive_digest)
        finally:
            await backend.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_attesters_make_the_same_bytes(system: System, quick: str, tmp_path: Path) -> None:
    """From scratch: into a store of its own that lacks the archive, with another hash seed, time zone and locale."""
    run = await system.api.completed(await system.api.start([quick], trials=2))
    history = await everything_holds(system)
    ((evidence, sealed),) = [
        (one.stream, one.event)
        for one in history.log
        if isinstance(one.event, EvidenceSealed) and one.event.run_id == run["id"]
    ]
    (pid,) = system.pids("builder")
    environment = dict(one.split("=", 1) for one in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in one)
    digests: set[str] = set()
    for seed, zone in (("1", "UTC"), ("4242", "Asia/Kathmandu")):
        store = tmp_path / seed / "objects"
        await asyncio.to_thread(_copy_without, system.home / "objects", store, sealed.archive_key)
        made = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-P", "-c", ATTEST, evidence, str(tmp_path / seed / "scratch")],
            env={
                **environment,
                "PYTHONPATH": str(ROOT),
                "PYTHONHASHSEED": seed,
                "TZ": zone,
                "SEATRIAL_OBJECTS_URL": f"file://{store}",
            },
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
            check=True,
        )
        digests.add(made.stdout.strip().splitlines()[-1])
        assert (store / sealed.archive_key).exists()
    assert digests == {sealed.archive_digest}


def _copy_without(source: Path, copy: Path, key: str) -> None:
    for root, _, names in os.walk(source):
        for name in names:
            path = Path(root) / name
            if (relative := path.relative_to(source)) != Path(key):
                (copy / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy / relative)


async def test_the_sbom_of_an_evaluation_is_a_valid_one(system: System, quick: str) -> None:
    run = await system.api.completed(await system.api.start([quick]))
    await everything_holds(system)
    async for one in system.api.pages(f"/v1/runs/{run['id']}/evaluations"):
        document = await system.api.text(f"/v1/evaluations/{one['id']}/sbom")
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None
