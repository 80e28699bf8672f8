"""Trials a second through the whole control plane when the trial itself is nothing: no sandbox, agent `nop`, no verifier.

All processes run as `seatrial up` starts them, but for the dispatcher, whose trials have no sandbox (dispatcher.py). The peer
is `harbor run` with an environment class that does nothing. Both have as many trials under way at a time.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx

from app.local import state
from app.local.child import choose_port
from app.local.report import Report
from app.local.steps import make_home, prepare_schema
from app.local.supervisor import GROUPS
from tests.benchmarks.figures import Figure, Goal, figure, median
from tests.benchmarks.ground import Ground, process
from tests.benchmarks.harbor_run import harbor_run
from tests.benchmarks.runs import complete, errored
from tests.journeys.api import Api
from tests.journeys.engine import Engine
from tests.journeys.packs import write_pack
from tests.journeys.system import descendants
from workers.builder.build.buildx import REPOSITORY

TRIALS = 1_000
SLOTS = 16
TURNS = 1


async def measure(ground: Ground) -> list[Figure]:
    await ground.rest()
    trials = ground.many(TRIALS, 16)
    pack = write_pack(ground.place("packs") / "nothing")
    ours: list[float] = []
    async with plant(ground) as (api, pids):
        assert (await api.built(pack, "nothing"))["status"] == "ready"
        await _run(api, SLOTS)
        for _ in range(TURNS):
            before = _processor_seconds(pids)
            ours.append(trials / await _run(api, trials))
            after = _processor_seconds(pids)
            used = [f"{name} {(after[name] - before[name]) / trials * 1000:.1f}" for name in pids]
            ground.say(f"{ours[-1]:.1f}/s; processor time by the trial, ms: {', '.join(used)}")
    peer = trials / await harbor_run(
        ground,
        pack,
        "nothing:Nothing",
        trials=trials,
        concurrency=SLOTS,
        agent="nop",
        more=("--disable-verification",),
    )
    ground.say(f"{', '.join(f'{rate:.1f}/s' for rate in ours)}; harbor run {peer:.1f}/s")
    return [
        figure(
            f"{trials} no-op trials through the whole control plane, {SLOTS} slots", median(ours), "trials/s",
            Goal("ratio", 2, least=True), peer="harbor run, an environment that does nothing", peer_value=peer,
        )
    ]  # fmt: skip


async def _run(api: Api, trials: int) -> float:
    """Seconds from the request to the completed runs. Every trial must have ended the one way there is."""
    taken, runs = await complete(api, "nothing", trials, agent="nop")
    assert errored(runs) == trials, runs
    return taken


@contextlib.asynccontextmanager
async def plant(ground: Ground) -> AsyncGenerator[tuple[Api, dict[str, int]]]:
    """All processes of a home, on servers of ours; their pids by name."""
    home = ground.place("plant")
    make_home(home)
    database, nats = await ground.database(), ground.nats.url
    await asyncio.to_thread(prepare_schema, database, nats, home, Report())
    port = choose_port(home / "port")
    variables = {
        "SEATRIAL_HOME": str(home),
        "SEATRIAL_DATABASE_URL": database,
        "SEATRIAL_NATS_URL": nats,
        "SEATRIAL_HTTP_PORT": str(port),
        "SEATRIAL_DOCKER_HOST": ground.docker_host,
        "SEATRIAL_HARNESS_HOME": str(ground.harness),
        "SEATRIAL_SLOTS": str(SLOTS),
        "BENCH_SANDBOX": "none",
    }
    revisions: list[str] = []
    pids = {"postgres": ground.postgres.pid or 0, "nats": ground.nats.pid or 0}
    with contextlib.ExitStack() as processes:
        for group in GROUPS:
            module = "tests.benchmarks.dispatcher" if group.name == "dispatcher" else "app.local.process"
            arguments = ["-m", module, ",".join(group.roles)]
            started = processes.enter_context(process(group.name, arguments, home / "logs", **variables))
            pids[group.name] = started.pid
        api = Api(f"http://127.0.0.1:{port}", state.key_file(home).read_text().strip(), revisions)
        try:
            await _ready(api)
            yield api, pids
        finally:
            await api.close()
            engine = Engine(ground.docker_host)
            for revision in revisions:
                await engine.remove_image(f"{REPOSITORY}/{revision}")
            await engine.close()


def _processor_seconds(pids: dict[str, int]) -> dict[str, float]:
    """What each process and all that it started have used so far."""
    ticks = os.sysconf("SC_CLK_TCK")

    def used(pid: int) -> int:
        try:
            return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            return 0

    return {name: sum(used(one) for one in (pid, *descendants(pid))) / ticks for name, pid in pids.items()}


async def _ready(api: Api) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await api.client.get("/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
