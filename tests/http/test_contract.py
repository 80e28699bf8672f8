"""The API is held against its own document by schemathesis, with all its checks: no 500, and every answer as documented.

It runs in a process of its own. What it needs to know beyond the document is in fuzzing.py and
schemathesis.toml. To try one of its findings by hand: its output has the curl command.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import pytest

from tests.http.world import Server, Team, things_of, up_to_now

ROOT = Path(__file__).parents[2]
SEED = 20261201


@pytest.fixture
async def there(team: Team) -> dict[str, str]:
    """Things that the key may see, by the names of path parameters, and a cursor."""
    return await things_of(team) | {"position": (await up_to_now(team))["Seatrial-After"]}


async def hold(server: Server, team: Team, there: dict[str, str], *options: str) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "SCHEMATHESIS_HOOKS": "tests.http.fuzzing",
        "SEATRIAL_FUZZ": msgspec.json.encode(there).decode(),
        "SEATRIAL_FUZZ_KEY": team.keys["admin"],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
        "--config-file", str(Path(__file__).with_name("schemathesis.toml")),
        "run", f"{server.url}/openapi.json", "--checks=all", "--no-color", "--warnings=off",
        "--continue-on-failure", "--request-timeout=60", f"--seed={SEED}", *options,
        env=environment, cwd=server.house.settings.home, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"No issues found" in said, said.decode()


async def test_every_answer_is_as_documented(server: Server, team: Team, there: dict[str, str]) -> None:
    await hold(server, team, there, "--phases=fuzzing", "--max-examples=2", "--generation-deterministic")


@pytest.mark.long
async def test_every_answer_is_as_documented_over_thousands_of_requests(
    server: Server, team: Team, there: dict[str, str]
) -> None:
    await hold(server, team, there, "--max-examples=50")
