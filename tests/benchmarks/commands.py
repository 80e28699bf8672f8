"""How long a command of the command line takes, from its start to its end."""

import asyncio
import os
import sys
import time
from pathlib import Path

from tests.benchmarks.figures import Figure, Goal, figure, median
from tests.benchmarks.ground import Ground

TIMES = 30
PROGRAM = Path(sys.executable).with_name("seatrial")


async def measure(ground: Ground) -> list[Figure]:
    system = await ground.system()
    client = system.api.client
    key = client.headers["Authorization"].removeprefix("Bearer ")
    told = {"SEATRIAL_API_URL": str(client.base_url), "SEATRIAL_API_KEY": key}
    figures: list[Figure] = []
    for name, arguments, bound in (("--help", ("--help",), 0.15), ("runs list", ("runs", "list"), 0.3)):
        command, bare = [], []
        for _ in range(ground.many(TIMES, 3)):
            bare.append(await _seconds([sys.executable, "-c", ""], told))
            command.append(await _seconds([str(PROGRAM), *arguments], told))
        figures.append(
            figure(
                f"seatrial {name}", median(command), "s", Goal("value", bound),
                peer="an empty Python program", peer_value=median(bare),
            )
        )  # fmt: skip
    return figures


async def _seconds(command: list[str], variables: dict[str, str]) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SEATRIAL_")}
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, env=environment | variables, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0
    return time.perf_counter() - began
