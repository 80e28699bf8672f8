"""`harbor run` as a peer: the same Harbor, from the same environment, on the same pack."""

import asyncio
import json
import os
import shutil
import time
from pathlib import Path

from tests.benchmarks.ground import Ground


async def harbor_run(
    ground: Ground,
    pack: Path,
    environment: str,
    *,
    trials: int,
    concurrency: int,
    agent: str = "oracle",
    more: tuple[str, ...] = (),
    plugins: Path | None = None,
) -> float:
    """Seconds from the start of the program to its end. Raises AssertionError unless every trial has ended well."""
    folder = ground.place("harbor")
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        str(ground.harness_python.with_name("harbor")), "run", "--path", str(pack), "--agent", agent, "--env", environment,
        "--n-attempts", str(trials), "--n-concurrent", str(concurrency), "--jobs-dir", str(folder), "--job-name", "job",
        "--yes", "--quiet", *more,
        cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={
            "PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(Path(__file__).parent / "peers"),
            "HARBOR_TELEMETRY": "0", "DOCKER_HOST": ground.docker_host,
            **({"DOCKER_CONFIG": str(plugins)} if plugins else {}),
        },
    )  # fmt: skip
    output, _ = await process.communicate()
    taken = time.perf_counter() - began
    assert process.returncode == 0, output.decode()[-3000:]
    results = [json.loads(path.read_text()) for path in (folder / "job").glob("*/result.json")]
    broken = [result["exception_info"] for result in results if result.get("exception_info")]
    assert len(results) == trials, f"{len(results)} of {trials} trials: {output.decode()[-3000:]}"
    assert not broken, broken[0]
    shutil.rmtree(folder, ignore_errors=True)
    return taken
